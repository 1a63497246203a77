"""The endpoints of the data path, one module per API.

endpoint.py       what a module defines: parsing, salts, errors, replay, migration, documentation
error_forms.py    the formats of errors, and the header that holds the request's id
openai_events.py  how migration reads the streams of chats and completions
typed_events.py   and those of messages and responses

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
from pando_router.endpoints.speech import TRANSCRIPTIONS, TRANSLATIONS
from pando_router.endpoints.tokenization import DETOKENIZE, TOKENIZE

__all__ = ["ENDPOINTS", "Endpoint"]

ENDPOINTS: dict[str, Endpoint[Any]] = {
    path: endpoint
    for endpoint in (
        *(CHAT, COMPLETIONS, RESPONSES, MESSAGES, COUNT_TOKENS, GENERATE),
        *(EMBEDDINGS, CLASSIFY, RERANK, SCORE, TOKENIZE, DETOKENIZE),
        *(TRANSCRIPTIONS, TRANSLATIONS),
    )
    for path in endpoint.paths
}
"""By path."""
