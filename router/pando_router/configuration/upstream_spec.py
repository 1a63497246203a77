"""An upstream in the settings: its address, and what it cannot report itself."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)
from pydantic_settings import NoDecode

from pando_router.http.pool import origin_of

MAX_KEY_BYTES = 8192
_KEY = re.compile(r"[\x21-\x7e]+")


class UpstreamSpec(BaseModel):
    """One engine. Its API key is read from its file together with the settings."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str
    name: str = ""  # of the replica; by default host and port
    pool: str = "default"
    api_key_file: Path | None = None
    endpoints: tuple[str, ...] = ()  # paths that it serves; none: all are tried
    max_requests: Annotated[int, Field(ge=0)] = 0  # at once; 0: as many as it reports, if it does

    _api_key: SecretStr | None = PrivateAttr(default=None)

    @property
    def api_key(self) -> SecretStr | None:
        return self._api_key

    @property
    def replica(self) -> str:
        return self.name or urlsplit(self.url).netloc

    @field_validator("url")
    @classmethod
    def _url_can_be_asked(cls, url: str) -> str:
        origin = origin_of(url)  # raises a ValueError
        if origin.path.endswith(b"/v1"):
            raise ValueError("remove the /v1 at the end; it is part of the requests' paths")
        return url.rstrip("/")

    @field_validator("name")
    @classmethod
    def _name_is_a_header_value(cls, name: str) -> str:
        if name and not _KEY.fullmatch(name):
            raise ValueError("a name must be ASCII without spaces")
        return name

    @field_validator("pool")
    @classmethod
    def _pool_is_part_of_a_key(cls, pool: str) -> str:
        if not pool or set("{}") & set(pool):
            raise ValueError("a pool's name must not be empty or contain braces")
        return pool

    @field_validator("endpoints")
    @classmethod
    def _endpoints_are_paths(cls, endpoints: tuple[str, ...]) -> tuple[str, ...]:
        for path in endpoints:
            if not path.startswith("/"):
                raise ValueError(f"{path!r} is not a path such as /v1/completions")
        return endpoints

    @model_validator(mode="after")
    def _read_key(self) -> Self:
        if self.api_key_file is not None:
            self._api_key = SecretStr(_key_in(self.api_key_file))
        return self


def _key_in(path: Path) -> str:
    """Raises ValueError with a message that has no part of the key."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_KEY_BYTES + 1)
        key = content.decode("ascii").strip()
    except OSError as error:
        raise ValueError(f"API key file {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        key = ""
    if len(content) > MAX_KEY_BYTES or not _KEY.fullmatch(key):
        raise ValueError(f"API key file {path} must have one line without spaces")
    return key


def _listed(value: Any) -> Any:
    """Makes upstreams of URLs, in one comma-separated text or in a list."""
    if isinstance(value, str):
        value = [url for part in value.split(",") if (url := part.strip())]
    if not isinstance(value, Iterable) or isinstance(value, dict | bytes):
        return value
    listed: list[Any] = []
    for one in value:
        if isinstance(one, str):
            listed += ({"url": url} for part in one.split(",") if (url := part.strip()))
        else:
            listed.append(one)
    return listed


Upstreams = Annotated[tuple[UpstreamSpec, ...], NoDecode, BeforeValidator(_listed)]
"""In YAML a list of URLs or mappings; as a flag `--upstream URL`, repeated; as a variable
`URL,URL`."""


def check_distinct(upstreams: Iterable[UpstreamSpec]) -> None:
    """Raises ValueError if two have the same address, or the same name in a pool."""
    seen: set[object] = set()
    for one in upstreams:
        for mark, what in ((one.url, one.url), ((one.pool, one.replica), repr(one.replica))):
            if mark in seen:
                raise ValueError(f"{what} occurs twice")
            seen.add(mark)
