"""The endpoints of the data path: one module states all that the router knows of one.

endpoint.py     what that is: how a body is read, and how its salt, its errors, its replay, its
                migration and its documentation look
error_forms.py  the forms of errors, and the header that names a request

To add an endpoint, write such a module and register it here. No other part of the router names an
endpoint's path.
"""

from typing import Any

from pando_router.endpoints.chat import CHAT
from pando_router.endpoints.completions import COMPLETIONS
from pando_router.endpoints.embeddings import CLASSIFY, EMBEDDINGS
from pando_router.endpoints.endpoint import Endpoint
from pando_router.endpoints.generate import GENERATE
from pando_router.endpoints.messages import COUNT_TOKENS, MESSAGES
from pando_router.endpoints.pairs import RERANK, SCORE
from pando_router.endpoints.responses import RESPONSES
from pando_router.endpoints.tokenization import DETOKENIZE, TOKENIZE

__all__ = ["ENDPOINTS", "Endpoint"]

ENDPOINTS: dict[str, Endpoint[Any]] = {
    path: endpoint
    for endpoint in (
        *(CHAT, COMPLETIONS, RESPONSES, MESSAGES, COUNT_TOKENS, GENERATE),
        *(EMBEDDINGS, CLASSIFY, RERANK, SCORE, TOKENIZE, DETOKENIZE),
    )
    for path in endpoint.paths
}
"""By path."""
