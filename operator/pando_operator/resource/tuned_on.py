"""The annotation that says on which traffic `pando tune` has tuned a pool."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated

from pydantic import Field, ValidationError

from pando_operator.resource.base import StatusPart

ANNOTATION = "pando.dev/tuned-on"

Mean = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class TunedOn(StatusPart):
    """A trace, and its traffic in means over the whole of it."""

    trace: Annotated[str, Field(min_length=1, max_length=253)]  # a name
    date: date  # of the search
    requests_per_hour: Mean
    prompt_tokens: Mean  # of a request
    output_tokens: Mean
    hit_rate: Annotated[float | None, Field(ge=0, le=1)] = None  # None: the trace does not have it

    def written(self) -> str:
        """The annotation's value."""
        return self.model_dump_json(by_alias=True, exclude_none=True)


def tuned_on(annotations: Mapping[str, str]) -> TunedOn | None:
    """None without the annotation, and for one that cannot be read: anyone may have written it."""
    if (text := annotations.get(ANNOTATION)) is None:
        return None
    try:
        return TunedOn.model_validate_json(text)
    except ValidationError:
        return None
