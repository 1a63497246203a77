"""All settings of `pando demo`."""

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from pando.up.models import TINY


class DemoSettings(BaseSettings):
    """Compare cache-aware routing with round robin on conversations that share system prompts.

    Starts a fleet for each policy on free ports, holds the same conversations with both, and shows
    how many tokens came from the cache and how long the first tokens took. The exit code is 1 if
    cache-aware routing is not better.
    """

    model_config = SettingsConfigDict(env_prefix="PANDO_DEMO_", extra="forbid", frozen=True)

    model: Annotated[
        str,
        Field(description="tiny, the small model of a checkout, or as for pando worker --model"),
    ] = TINY
    workers: Annotated[int, Field(ge=2, le=64, description="in each of the two fleets")] = 2
