"""What the process that parses large bodies answers; `body_reader.py` asks it."""

from typing import NamedTuple

from pando_router.endpoints import ENDPOINTS
from pando_router.requests.request import KEYED_BYTES


class Parse(NamedTuple):
    """Asks for the Request of a body."""

    path: str
    content_type: bytes


class Rename(NamedTuple):
    """Asks for the body with another model's name."""

    path: str
    content_type: bytes
    model: str


def answer(question: Parse | Rename, body: bytes) -> tuple[object, bytes]:
    endpoint = ENDPOINTS[question.path]
    match question:
        case Parse():
            request = endpoint.parse(body, question.content_type)
            return request.with_cut_prefix(KEYED_BYTES), b""
        case Rename():
            return None, endpoint.renamed(body, question.content_type, question.model)
