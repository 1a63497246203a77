"""The path of the page to talk to the models."""

from pathlib import Path

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from starlette.exceptions import HTTPException

from pando_router.configuration.live import Live
from pando_router.pages.document import read_document

CHAT_PATH = "/chat"
"""Open where there are API keys: a browser cannot send one before the page has asked for it."""

PAGE = Path(__file__).with_name("page")
SCRIPTS = (
    "inline.js",
    "blocks.js",
    "answer.js",
    "store.js",
    "stream.js",
    "turn.js",
    "pane.js",
    "main.js",
)


def chat_routes(live: Live) -> APIRouter:
    """404 while the setting `chat_page` is off. Raises OSError where the package lacks the page."""
    router = APIRouter()
    page = read_document(PAGE, SCRIPTS)

    @router.get(CHAT_PATH, response_class=HTMLResponse)
    async def chat() -> HTMLResponse:
        """The page to talk to the models."""
        if not live.settings.chat_page:
            raise HTTPException(404, "Not Found")
        return HTMLResponse(page.html, headers=page.headers)

    return router
