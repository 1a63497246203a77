"""What clients may ask: the paths of the data path, and how the body of each is read.

Only what decides where a request goes is checked here; everything else is the worker's to judge,
and its bytes are forwarded as they came.
"""

import re
from collections.abc import Callable

import msgspec

from pando_router.errors import bad_request
from pando_router.requests.chat import ChatBody, chat
from pando_router.requests.completion import CompletionBody, completion
from pando_router.requests.embeddings import InputsBody, classify, embeddings
from pando_router.requests.generate import GenerateBody, generate
from pando_router.requests.messages import CountedBody, MessagesBody, count_tokens, messages
from pando_router.requests.pairs import RerankBody, ScoreBody, rerank, score
from pando_router.requests.request import Request
from pando_router.requests.responses import ResponsesBody, responses
from pando_router.requests.tokenization import TokenizationBody, tokenization

__all__ = ["BODIES", "PARSERS", "Request", "parse"]

PARSERS: dict[str, Callable[[bytes], Request]] = {
    "/v1/chat/completions": chat,
    "/v1/completions": completion,
    "/v1/responses": responses,
    "/v1/messages": messages,
    "/v1/messages/count_tokens": count_tokens,
    "/v1/embeddings": embeddings,
    "/v1/rerank": rerank,
    "/rerank": rerank,
    "/v1/score": score,
    "/score": score,
    "/v1/classify": classify,
    "/classify": classify,
    "/generate": generate,
    "/tokenize": tokenization,
    "/detokenize": tokenization,
}

# What each parser decodes: the fields that the router reads; the others are the replica's.
BODIES: dict[str, type[msgspec.Struct]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": CompletionBody,
    "/v1/responses": ResponsesBody,
    "/v1/messages": MessagesBody,
    "/v1/messages/count_tokens": CountedBody,
    "/v1/embeddings": InputsBody,
    "/v1/rerank": RerankBody,
    "/rerank": RerankBody,
    "/v1/score": ScoreBody,
    "/score": ScoreBody,
    "/v1/classify": InputsBody,
    "/classify": InputsBody,
    "/generate": GenerateBody,
    "/tokenize": TokenizationBody,
    "/detokenize": TokenizationBody,
}


def parse(path: str, body: bytes) -> Request:
    """The request for one of PARSERS' paths. Raises ApiError 400 for what cannot be placed."""
    try:
        return PARSERS[path](body)
    except msgspec.ValidationError as error:
        raise bad_request(str(error), _param(error)) from error
    except (msgspec.DecodeError, UnicodeError) as error:
        raise bad_request(f"the request body is not valid JSON: {error}") from error
    except RecursionError as error:
        raise bad_request("the request body is nested too deeply") from error


def _param(error: msgspec.ValidationError) -> str | None:
    """The field's name in "... at `$.messages[0]`" or "... missing required field `messages`"."""
    found = re.search(r"\$\.(\w+)|missing required field `(\w+)`", str(error))
    return (found[1] or found[2]) if found else None
