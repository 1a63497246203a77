"""Every setting of `pando tune`."""

from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import SettingsConfigDict

from pando_operator.resource.policy import known_zone
from pando_sim.settings import FLEET, ReplaySettings, Words
from pando_sim.settings import PolicyName as AnyPolicyName


class TuneSettings(ReplaySettings):
    """Searches the settings of a pool that serve a trace best, by simulating it.

    Candidates are searched on one part of the trace and judged on another. Prints a table and what
    each field contributes, and writes report.html, results.json, pool.yaml and patch.json. The
    same seed gives the same answer. Ctrl-C ends the search and shows what it has found.
    """

    model_config = SettingsConfigDict(env_prefix="PANDO_TUNE_", extra="forbid", frozen=True)

    ttft_p99: Annotated[
        float, Field(gt=0, description="seconds within which 99 % of the first tokens shall come")
    ] = FLEET.slow_ttft_s
    gap_p99: Annotated[
        float,
        Field(
            gt=0,
            description="seconds below which the mean time between tokens shall be for 99 % of the"
            " requests",
        ),
    ] = FLEET.slow_gap_s
    budget: Annotated[
        float | None,
        Field(
            gt=0,
            description="GPU-hours a week: ask for the fewest misses for it, instead of the fewest"
            " GPU-hours with which 99 % are in time",
        ),
    ] = None
    as_good_as_today: Annotated[
        bool,
        Field(
            description="ask for the fewest GPU-hours with which no more requests miss a time than"
            " with today's manifest, instead of 1 %"
        ),
    ] = False
    search: Annotated[
        Words[str],
        Field(
            description="FIELD=LOW..HIGH: another range for a field, or a field that is searched"
            " only if asked for, such as engine.maxTotalTokens=50000..120000 or"
            " behavior.scaleDown.policies.pods=1..4;"
            " policy=all or policy=ONE+OTHER for placement policies; repeat it for more"
        ),
    ] = ()
    only: Annotated[
        Words[str],
        Field(
            description="search this field of spec.scaling only (target.pressure, …), or all of a"
            " part (target, schedules, …); repeat it for more; 'named': those that the manifest"
            " sets"
        ),
    ] = ()
    time_zone: Annotated[
        str,
        Field(description="IANA name of the zone that schedules are written in (Europe/Berlin)"),
        AfterValidator(known_zone),
    ] = "UTC"
    policy: Annotated[AnyPolicyName, Field(description="placement policy of the routers today")] = (
        FLEET.policy
    )
    vary: Annotated[
        bool,
        Field(
            description="also play the best candidates with 20 % more and fewer arrivals, starts"
            " that take twice as long, and a lost replica; leaves out those on a cliff"
        ),
    ] = False
    excerpt: Annotated[
        int,
        Field(
            ge=100,
            description="most requests, about, of a run that tries a candidate; where the part of"
            " the trace that is searched has more, it is an excerpt of it; the best candidates are"
            " played again, and judged on the other part, on three times as much",
        ),
    ] = 4000
    trials: Annotated[int, Field(ge=1, le=100_000, description="candidates to try")] = 60
    minutes: Annotated[
        float | None,
        Field(
            gt=0,
            description="time after which no further candidates are tried; judging comes after it",
        ),
    ] = None
    resume: Annotated[
        bool,
        Field(description="go on with the search whose runs are in the output folder"),
    ] = False
    anyway: Annotated[
        bool,
        Field(
            description="search also a trace that is too short to say much, or a recording that the"
            " simulator does not predict"
        ),
    ] = False
    output: Annotated[Path, Field(description="folder for the report and the files")] = Path(
        "pando-tune"
    )

    @model_validator(mode="after")
    def _asks_for_one_thing(self) -> Self:
        if self.budget is not None and self.as_good_as_today:
            raise ValueError(
                "budget and as-good-as-today exclude each other: one asks for the fewest misses,"
                " the other for the fewest GPU-hours"
            )
        return self

    @model_validator(mode="after")
    def _has_a_pool(self) -> Self:
        if self.pool is None:
            raise ValueError("pool is required: the manifest whose settings are searched")
        return self
