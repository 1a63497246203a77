"""The command `pando sim calibrate`: its options. Imports the measurement only once they are right,
so that a mistake is reported before that loads."""

import os
import re
from pathlib import Path

import click

from pando.redact import redact

_VARIABLES = "PANDO_CALIBRATE"


@click.command("calibrate", context_settings={"auto_envvar_prefix": _VARIABLES})
@click.argument("url")
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="file for the cost model; by default the model's name with .json",
)
@click.option("--name", help="name of the cost model; by default that of the file")
@click.option("--machine", help="the worker's machine, in words; by default as the worker reports")
@click.option(
    "--repeat",
    type=click.IntRange(1, 101),
    default=5,
    show_default=True,
    help="repetitions of each measurement, or up to 4 more if noise needs it; the median counts",
)
@click.option(
    "--longest-prompt",
    type=click.IntRange(256),
    default=32_768,
    show_default=True,
    help="longest prompt in tokens; shorter if the worker allows less",
)
@click.option(
    "--most-together",
    type=click.IntRange(1),
    default=64,
    show_default=True,
    help="most requests that decode at once",
)
@click.option(
    "--chunked-prefill-size",
    type=click.IntRange(1),
    help="tokens of a prefill chunk, if the worker does not report them",
)
@click.option(
    "--capacity-tokens",
    type=click.IntRange(1),
    help="tokens of the KV pool, if the worker does not report them",
)
@click.option(
    "--kv-bytes-per-token",
    type=click.IntRange(1),
    help="bytes of keys and values in all layers; a simulated host tier needs it",
)
@click.option(
    "--copy-bytes-per-s",
    type=click.FloatRange(0, min_open=True),
    help="copy rate between device and host memory; a simulated host tier needs it",
)
@click.option(
    "--pause-s",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="pause before each single request, since an idle worker is slower at first",
)
@click.option(
    "--timeout-s",
    type=click.FloatRange(0, min_open=True),
    default=600.0,
    show_default=True,
    help="timeout of one request",
)
def command(
    url: str,
    output: Path | None,
    name: str | None,
    kv_bytes_per_token: int | None,
    copy_bytes_per_s: float | None,
    **options: object,
) -> None:
    """Measure the worker at URL, such as http://127.0.0.1:30000, and write its cost model.

    This takes some minutes, in which the worker must not serve other requests. It computes prompts
    of chosen lengths, new and cached, one at a time and several at once. `pando sim` reads the
    file as its cost model. An API key is read from OPENAI_API_KEY.
    """
    if not re.match(r"https?://[^/]", url):
        raise click.UsageError(
            f"URL is {redact(url)!r}: it must be a worker's, such as http://127.0.0.1:30000"
        )
    from pando.sim.cost_model import Facts, write_cost_model
    from pando_sim.cost.calibration.calibrate import Options

    key = os.environ.get("OPENAI_API_KEY")  # an option would show it in `ps`
    asked = Options(url=url, api_key=key, **options)  # type: ignore[arg-type]
    write_cost_model(asked, Facts(output, name, kv_bytes_per_token, copy_bytes_per_s))
