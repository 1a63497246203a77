"""Calls to the API server with plain dicts, over the official client's connections and credentials.

Objects stay dicts, because the client's models refuse unknown fields and drop what a newer server
adds. Each call has a deadline and raises only `KubeError`s.
"""

import asyncio
import json
import re
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any, Literal
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client.api_client import ApiClient
from kubernetes.aio.client.configuration import Configuration

from pando_operator.kube.errors import Gone, Unavailable, error_of
from pando_operator.kube.resources import Key, Object, Resource, key_of

TIMEOUT_S = 10.0
PAGE = 500  # objects in one page of a list
WATCH_S = 60  # after which the server ends a watch, and the next one continues
SILENCE_S = WATCH_S + 10.0  # a watch that receives nothing for so long has lost its connection

PatchType = Literal["merge", "strategic-merge"]
OnCall = Callable[[str, str, str, float], None]
"""Called after each call with: verb, plural of the resource, outcome, seconds."""


@dataclass(frozen=True, slots=True)
class Access:
    """What other HTTP clients need for the API server, such as one that streams through the proxy
    of a pod."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    ssl: SSLContext


class Kube:
    """A connection pool to one API server; `close` it at the end."""

    def __init__(
        self,
        configuration: Configuration,
        *,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._ca_file: str | None = configuration.ssl_ca_cert
        self._client = ApiClient(configuration)
        self._client.user_agent = "pando-operator"
        self._timeout_s = timeout_s
        self.on_call: OnCall | None = None

    async def close(self) -> None:
        await self._client.close()

    async def access(self) -> Access:
        """Raises Unavailable if the credentials cannot be read."""
        _, url, headers, *_ = await self._serialized("GET", "/", {}, None)
        return Access(url.rstrip("/"), headers, self._client.rest_client.ssl_context)

    async def minor(self) -> int:
        """The minor number of the server's version 1.N; 0 for one that was built without it."""
        timeout = aiohttp.ClientTimeout(total=self._timeout_s)
        doing = "get version"
        try:
            response = await self._request("GET", "/version", {}, None, "", timeout)
            try:
                data = await response.read()
            finally:
                response.release()
            if response.status >= 400:
                raise error_of(response.status, data, doing)
            digits = re.match(r"\d+", str(json.loads(data)["minor"]))
            return int(digits[0]) if digits else 0
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, KeyError) as error:
            self._read_ca_after(error)
            raise _unreachable(doing, error) from error

    async def get(self, resource: Resource, key: Key) -> Object:
        return await self._call("get", "GET", resource, key)

    async def list(
        self, resource: Resource, namespace: str = "", selector: str = "", fields: str = ""
    ) -> tuple[list[Object], str]:
        """All objects of a namespace (or of the cluster), and the resourceVersion to watch from.
        `selector` is by labels, `fields` by fields such as `metadata.name=pando`."""
        items: list[Object] = []
        query = {"limit": str(PAGE)} | _selected(selector, fields)
        while True:
            page = await self._call("list", "GET", resource, Key(namespace, ""), query=query)
            # The items of a list lack apiVersion and kind.
            named = {"apiVersion": resource.api_version, "kind": resource.kind}
            items += [named | item for item in page.get("items") or ()]
            metadata = page.get("metadata", {})
            if not metadata.get("continue"):
                return items, str(metadata.get("resourceVersion", ""))
            query["continue"] = metadata["continue"]

    async def create(self, resource: Resource, body: Object) -> Object:
        """Raises Conflict if the object exists."""
        key = Key(key_of(body).namespace, "")
        return await self._call("create", "POST", resource, key, body=body)

    async def replace(self, resource: Resource, body: Object) -> Object:
        """Write the whole object. Raises Conflict if it changed since `body`'s resourceVersion."""
        return await self._call("update", "PUT", resource, key_of(body), body=body)

    async def delete(self, resource: Resource, key: Key) -> None:
        await self._call("delete", "DELETE", resource, key)

    async def apply(
        self,
        resource: Resource,
        body: Object,
        *,
        manager: str,
        subresource: str = "",
        force: bool = True,
    ) -> Object:
        """Server-side apply: `manager` then owns the fields of `body` and gives up fields of its
        last apply that `body` lacks. With `force` it takes fields from other managers; without it,
        such a field raises FieldConflict and nothing changes."""
        return await self._call(
            "patch",
            "PATCH",
            resource,
            key_of(body),
            subresource=subresource,
            query={"fieldManager": manager, "force": str(force).lower()},
            body={"apiVersion": resource.api_version, "kind": resource.kind} | body,
            content_type="application/apply-patch+yaml",
        )

    async def patch(
        self,
        resource: Resource,
        key: Key,
        body: Object,
        *,
        manager: str,
        kind: PatchType = "merge",
        subresource: str = "",
    ) -> Object:
        return await self._call(
            "patch",
            "PATCH",
            resource,
            key,
            subresource=subresource,
            query={"fieldManager": manager},
            body=body,
            content_type=f"application/{kind}-patch+json",
        )

    async def watch(
        self, resource: Resource, namespace: str, selector: str, version: str, fields: str = ""
    ) -> AsyncGenerator[tuple[str, Object]]:
        """Changes after `version`, as (ADDED, MODIFIED, DELETED or BOOKMARK, object), until the
        server ends the watch. Raises Gone if `version` is too old."""
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(WATCH_S),
        } | _selected(selector, fields)
        doing = f"watch {resource.plural}"
        timeout = aiohttp.ClientTimeout(connect=self._timeout_s, sock_read=SILENCE_S)
        try:
            response = await self._request(
                "GET", resource.path(namespace), query, None, "", timeout
            )
            try:
                if response.status >= 400:
                    raise error_of(response.status, await response.read(), doing)
                async for line in response.content:
                    yield _event(line, doing)
            finally:
                response.close()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            self._read_ca_after(error)
            raise _unreachable(doing, error) from error

    async def _call(
        self,
        verb: str,
        method: str,
        resource: Resource,
        key: Key,
        *,
        subresource: str = "",
        query: dict[str, str] | None = None,
        body: Object | None = None,
        content_type: str = "application/json",
    ) -> Object:
        path = resource.path(key.namespace, key.name, subresource)
        doing = " ".join((verb, "/".join(filter(None, (resource.plural, key.name, subresource)))))
        timeout = aiohttp.ClientTimeout(total=self._timeout_s)
        started, outcome = time.monotonic(), "unreachable"
        try:
            response = await self._request(method, path, query or {}, body, content_type, timeout)
            try:
                data = await response.read()
            finally:
                response.release()
            outcome = str(response.status)
            if response.status >= 400:
                raise error_of(response.status, data, doing)
            answer: Object = json.loads(data)
            return answer
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
            self._read_ca_after(error)
            raise _unreachable(doing, error) from error
        except asyncio.CancelledError:
            outcome = "cancelled"
            raise
        finally:
            if self.on_call:
                self.on_call(verb, resource.plural, outcome, time.monotonic() - started)

    def _read_ca_after(self, error: Exception) -> None:
        """After a certificate that no known authority has signed, read the authorities again:
        Kubernetes renews the file when the cluster's authority changes. The next call uses them."""
        if isinstance(error, aiohttp.ClientConnectorCertificateError) and self._ca_file:
            with suppress(OSError):  # unreadable for a moment, or half written
                self._client.rest_client.ssl_context.load_verify_locations(self._ca_file)

    async def _request(
        self,
        method: str,
        path: str,
        query: dict[str, str],
        body: Object | None,
        content_type: str,
        limits: aiohttp.ClientTimeout,
    ) -> aiohttp.ClientResponse:
        headers = {"Content-Type": content_type} if content_type else {}
        where = f"{path}?{urlencode(query)}" if query else path
        call = await self._serialized(method, where, headers, body)
        answer = await self._client.call_api(*call, _request_timeout=limits)
        response: aiohttp.ClientResponse = answer.response
        return response

    async def _serialized(
        self, method: str, path: str, headers: Mapping[str, str], body: Object | None
    ) -> Any:
        """The arguments of the client's `call_api`. The client adds its credentials; it reads a
        mounted token again for each call."""
        try:
            return await self._client.param_serialize(
                method,
                path,
                header_params={**headers, "Accept": "application/json"},
                body=body,
                auth_settings=["BearerToken"],
            )
        except kube_config.ConfigException as error:
            raise Unavailable(f"the service account's token cannot be read: {error}") from error


def _event(line: bytes, doing: str) -> tuple[str, Object]:
    try:
        event = json.loads(line)
        kind, item = str(event["type"]), event["object"]
    except (ValueError, KeyError, TypeError) as error:
        raise Unavailable(f"{doing}: the stream broke off ({error})") from error
    if kind == "ERROR":
        # Any error means that events may be missing; a compaction shows as several of them.
        raise Gone(f"{doing}: {item.get('message') or item}")
    return kind, item


def _unreachable(doing: str, error: Exception) -> Unavailable:
    return Unavailable(f"{doing}: {type(error).__name__} {error}".rstrip())


def _selected(labels: str, fields: str) -> dict[str, str]:
    given = {"labelSelector": labels, "fieldSelector": fields}
    return {name: value for name, value in given.items() if value}
