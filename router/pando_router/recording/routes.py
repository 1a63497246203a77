"""`/recording`: whether requests are recorded, and the files; only for admins."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse

from pando_fleet.misread import misread
from pando_fleet.redis.client import FleetError
from pando_router.errors import ApiError, bad_request, unavailable
from pando_router.recording.folder import Found, recordings
from pando_router.recording.recording import RouterRecording

PATH = "/recording"
PIECE = 256 * 1024  # bytes that are read at once


class Wanted(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    on: bool | None


class RecordingFile(msgspec.Struct, kw_only=True):
    """A file of the folder; other routers that share the folder list it, too."""

    file: str  # its own random name, which it keeps as it becomes an older file
    router: str
    secret: str  # equal where keys are comparable
    started: float  # Unix time
    changed: float
    size: int  # bytes


def recording_routes(recording: RouterRecording | None) -> APIRouter:
    """`recording` is None if the router has no file for it."""
    router = APIRouter()

    @router.get(PATH)
    async def state() -> dict[str, Any]:
        """Whether this router records, and the recordings in its folder, the oldest first."""
        if recording is None:
            return {"on": False, "changed": None, "files": []}
        found = await asyncio.to_thread(recordings, recording.path)
        files = [msgspec.to_builtins(_file(one)) for one in found]
        return {"on": recording.switch.on, "changed": recording.switch.changed, "files": files}

    @router.patch(PATH, responses={409: {"description": "the router has no file for it"}})
    async def change(request: Request) -> dict[str, Any]:
        """Switches the recording of all routers: `{"on": true}`, `{"on": false}`, or null for what
        each router's settings say."""
        wanted = _read(await request.body())
        if recording is None:
            raise ApiError(
                409,
                "this router has no file to record to: set `record` (docs/traces.md)",
                code="no_recording_file",
            )
        try:
            await recording.switch.set(wanted.on)
        except FleetError as error:
            raise unavailable(str(error), "redis_away") from error
        return await state()

    @router.get(f"{PATH}/files/{{file}}", response_class=Response)
    async def content(file: str) -> Response:
        """A recording, as it is now."""
        found = [] if recording is None else await asyncio.to_thread(recordings, recording.path)
        one = next((one for one in found if one.header.file == file), None)
        if one is None:
            raise ApiError(404, f"there is no recording {file[:200]!r}: {PATH} lists them")
        headers = {"content-length": str(one.size)}
        return StreamingResponse(_content(one), headers=headers, media_type="application/x-ndjson")

    return router


def _read(body: bytes) -> Wanted:
    """Raises ApiError 400."""
    try:
        return msgspec.json.decode(body, type=Wanted)
    except msgspec.DecodeError as error:
        why = misread(error).about("the body")
    except UnicodeError as error:
        why = str(error)
    raise bad_request(f'{why}; the body must be {{"on": true}}, false or null', "on")


def _file(found: Found) -> RecordingFile:
    header = found.header
    return RecordingFile(
        file=header.file,
        router=header.router,
        secret=header.secret,
        started=header.started,
        changed=found.changed,
        size=found.size,
    )


async def _content(found: Found) -> AsyncIterator[bytes]:
    """The file's first `size` bytes: it may grow meanwhile. Reads beside the event loop."""
    rest = found.size
    file = await asyncio.to_thread(found.path.open, "rb")
    try:
        while rest and (piece := await asyncio.to_thread(file.read, min(PIECE, rest))):
            rest -= len(piece)
            yield piece
    finally:
        file.close()
