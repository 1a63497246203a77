"""The model's tokenizer and chat template: turns text or messages into token ids, and back."""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

import jinja2

from pando_worker.server.errors import bad_request
from pando_worker.server.text.long_texts import Room, is_long, last_tokens, refuse_far_too_long
from pando_worker.server.text.pairs import TokenPair, truncated
from pando_worker.tokenizer.detokenizer import Vocabulary
from pando_worker.tokenizer.essentials import load_essentials
from pando_worker.tokenizer.loading import load_tokenizer

T = TypeVar("T")

INLINE_CHARS = 8192
"""A longer prompt is tokenized in a thread (the tokenizer releases the GIL): at 1 to 3 µs per
character it would delay every stream."""

_THREADS = 2
_END = object()
_MARKUP = 16  # characters that a template writes around an object or a list


@dataclass(frozen=True, slots=True)
class Prompt:
    token_ids: list[int]
    num_bytes: int  # of the text of these tokens


class Tokenizer:
    """Thread-safe, since the Rust tokenizer is only read once it is loaded."""

    def __init__(self, model_dir: Path, *, generates: bool = True) -> None:
        """
        Args:
            generates: whether tokens become text one by one; else any kind of tokenizer will do

        Raises UnsupportedModel or BrokenCheckpoint if there is no usable tokenizer.
        """
        self._model_dir = model_dir
        self._essentials = load_essentials(model_dir)
        self._backend = self._essentials.backend()
        # Some files set one, but a prompt is never truncated silently.
        self._backend.no_truncation()
        self._backend.no_padding()
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="tokenizer")
        self.vocabulary = Vocabulary(self._backend, generates=generates)
        self.eos_token_id = self._essentials.eos_token_id
        self._templates: Future[_Templates] | None = None

    def load_templates(self) -> Future["_Templates"]:
        """In a thread, and once: a start does not wait for it, and the first chat does."""
        if self._templates is None:
            self._templates = self._pool.submit(_Templates, self._model_dir)
        return self._templates

    async def encode(
        self, text: str, room: Room | None = None, *, add_special_tokens: bool = True
    ) -> Prompt:
        """All tokens if `room` is None; if it keeps only the last ones, the first may be missing.

        Raises ApiError 400 for text that is not Unicode or is far too long.
        """
        return await self._run(lambda: self._encode(text, room, add_special_tokens), len(text))

    async def encode_pair(self, first: str, second: str, room: Room) -> TokenPair:
        """Two texts as one prompt, with the tokens that the tokenizer puts around and between them.

        Raises ApiError 400 for text that is not Unicode or is far too long.
        """
        return await self._run(
            lambda: self._encode_pair(first, second, room), len(first) + len(second)
        )

    async def encode_chat(
        self,
        messages: Sequence[dict[str, Any]],
        room: Room | None = None,
        *,
        tools: Sequence[dict[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        answer: str = "",
        template_kwargs: dict[str, Any] | None = None,
        edit: Callable[[str], str] = str,
    ) -> Prompt:
        """The rendered chat template followed by the beginning of an answer; `room` is for both.
        The answer is appended verbatim, not rendered as a message. `edit` changes the whole text.

        Raises ApiError 400 if the model has no chat template or the template refuses the messages.
        """
        if self._essentials.chat_template is None:
            raise bad_request(
                "this model has no chat template; use /v1/completions with a prompt instead",
                "messages",
            )
        kwargs = template_kwargs or {}
        loading = self.load_templates()
        # Shielded, as a client that leaves would cancel it for all.
        templates = (
            loading.result()
            if loading.done()
            else await asyncio.shield(asyncio.wrap_future(loading))
        )
        if reserved := sorted(templates.own_arguments & kwargs.keys()):
            raise bad_request(f"{reserved[0]!r} cannot be set here", "chat_template_kwargs")

        def render_and_encode() -> Prompt:
            # The template writes the special tokens itself.
            given = {"tools": list(tools) if tools else None, **kwargs}
            text = templates.render(messages, add_generation_prompt, given) + answer
            return self._encode(edit(text), room, False)

        return await self.run(render_and_encode, [messages, tools, answer])

    @property
    def chat_template(self) -> str | None:
        """The source of the model's chat template, or of all of them if it has several."""
        template = self._essentials.chat_template
        return "\n".join(template.values()) if isinstance(template, dict) else template

    def decode(self, token_ids: list[int], *, special_tokens: bool = True) -> str:
        """The text of a whole token sequence, with or without its special tokens."""
        return str(self._backend.decode(token_ids, skip_special_tokens=not special_tokens))

    async def decode_all(self, token_ids: list[int]) -> str:
        """`decode`, in a thread if it takes long."""
        return await self._run(lambda: self.decode(token_ids), len(token_ids))

    @property
    def around_text(self) -> list[int]:
        """The special tokens that it puts around a text."""
        return list(self._backend.encode("").ids)

    def special_token(self, text: str) -> int | None:
        """A special token's id; None if there is none with this text."""
        wanted = text.encode()
        return next((id for id, name in self.vocabulary.special.items() if name == wanted), None)

    def tokens(self, token_ids: list[int]) -> list[str]:
        """The vocabulary's own spelling of each token."""
        return [self._backend.id_to_token(token_id) or "" for token_id in token_ids]

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _encode(self, text: str, room: Room | None, add_special_tokens: bool) -> Prompt:
        num_bytes = check_unicode(text, room.param if room else None)

        def encode(part: str) -> list[int]:
            return list(self._backend.encode(part, add_special_tokens=add_special_tokens).ids)

        if room is not None and room.keep is not None and room.from_start:
            ids = truncated(self._backend, text, None, room).token_ids
            return Prompt(ids, len(self.decode(ids).encode()))
        if room is not None and is_long(text, room):
            if room.keep is not None:
                # With more tokens it is too long anyway.
                keep = min(room.keep, room.tokens + 1)
                ids = last_tokens(text, keep, encode)
                return Prompt(ids, len(self.decode(ids[-keep:]).encode()))
            refuse_far_too_long(text, room, self._plain)
        return Prompt(encode(text), num_bytes)

    def _encode_pair(self, first: str, second: str, room: Room) -> TokenPair:
        for text in (first, second):
            check_unicode(text, room.param)
            if room.keep is None and is_long(text, room):
                refuse_far_too_long(text, room, self._plain)
        return truncated(self._backend, first, second, room)

    def _plain(self, text: str) -> list[int]:
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    async def run(self, work: Callable[[], T], value: object) -> T:
        """Runs the work in a thread if the value, which it goes through, is large."""
        return await self._run(work, _chars(value))

    async def _run(self, work: Callable[[], T], chars: int) -> T:
        if chars <= INLINE_CHARS:
            return work()
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)


def check_unicode(text: str, param: str | None) -> int:
    """The text's bytes. Raises ApiError 400 for text that is not Unicode."""
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        raise bad_request(f"the prompt is not valid Unicode: {error.reason}", param) from error


class _Templates:
    """A model's chat templates, as transformers renders them."""

    def __init__(self, model_dir: Path) -> None:
        self._tokenizer = load_tokenizer(model_dir)
        parameters = inspect.signature(self._tokenizer.apply_chat_template).parameters
        # That the caller sets, such as the template itself, and clients may not.
        self.own_arguments = {"self", "messages", *parameters}

    def render(
        self,
        messages: Sequence[dict[str, Any]],
        add_generation_prompt: bool,
        kwargs: dict[str, Any],
    ) -> str:
        """Raises ApiError 400 if the template refuses the messages."""
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    list(messages),
                    tokenize=False,
                    add_generation_prompt=add_generation_prompt,
                    **kwargs,
                )
            )
        # A template is the model's code: it may refuse a message, or fail on one.
        except (jinja2.TemplateError, TypeError, ValueError, KeyError, AttributeError) as error:
            raise bad_request(f"the model's chat template: {error}", "messages") from error


def _chars(value: object) -> int:
    """About how many characters this value becomes in a template; more than `INLINE_CHARS` are not
    counted further."""
    chars, rest = 0, [iter((value,))]
    while rest and chars <= INLINE_CHARS:
        match next(rest[-1], _END):
            case str(text):
                chars += len(text)
            case dict(fields):
                chars += _MARKUP
                rest.append(chain.from_iterable(fields.items()))
            case list() | tuple() as values:
                chars += _MARKUP
                rest.append(iter(values))
            case end if end is _END:
                rest.pop()
            case _:
                chars += 8
    return chars
