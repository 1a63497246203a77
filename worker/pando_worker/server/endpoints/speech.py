"""POST /v1/audio/transcriptions and /v1/audio/translations, whose bodies are forms."""

from fastapi import APIRouter, Request
from starlette.responses import Response

from pando_worker.audio.tokens import TRANSCRIBE, TRANSLATE
from pando_worker.server.service import Service


def routes(service: Service) -> APIRouter:
    router = APIRouter()

    @router.post("/v1/audio/transcriptions", response_model=None)
    async def transcriptions(request: Request) -> Response:
        return await _answer(service, request, TRANSCRIBE)

    @router.post("/v1/audio/translations", response_model=None)
    async def translations(request: Request) -> Response:
        return await _answer(service, request, TRANSLATE)

    return router


async def _answer(service: Service, request: Request, task: str) -> Response:
    # Imported here: numpy takes a tenth of a second, and most workers hear nothing.
    from pando_worker.server.speech.transcribing import transcribed

    return await transcribed(service, request, task)
