"""Prompts of encoder-decoders that read text: the encoder reads them, and the decoder begins with
tokens of its own."""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from pando_worker.messages import Raw, SentArray, Source
from pando_worker.models.config import ModelConfig
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.generation_config import GenerationConfig
from pando_worker.models.kinds.encoder_decoder import TextInput, source_positions
from pando_worker.server.errors import bad_request
from pando_worker.server.languages import AskedLanguages, Languages, languages_of, no_languages
from pando_worker.server.text.tokenizer import Tokenizer
from pando_worker.settings import WorkerSettings


@dataclass(frozen=True, slots=True)
class SourceTexts:
    """
    Attributes:
        positions: tokens of a text, at most
        start: with which the decoder begins
        languages: of a model that translates
    """

    positions: int
    start: tuple[int, ...]
    languages: Languages | None = None

    def begun(self, asked: AskedLanguages) -> list[int]:
        """With what the decoder begins for a request.

        Raises:
            ApiError: 400, the model does not have the languages that the request names.
        """
        if asked.target is None:
            return list(self.start)
        return self._spoken("tgt_lang").in_target(self.start, asked.target)

    def read(
        self, given: Sequence[str | list[int]], encoded: Sequence[list[int]], asked: AskedLanguages
    ) -> list[list[int]]:
        """The prompts' tokens in the language that the request names.

        Args:
            given, encoded: the prompts, as sent and as tokens

        Raises:
            ApiError: 400, the model does not have this language, or a prompt is tokens already.
        """
        if asked.source is None:
            return list(encoded)
        languages = self._spoken("src_lang")
        if not all(isinstance(prompt, str) for prompt in given):
            raise bad_request("prompts of token ids have the language's own", "src_lang")
        return [languages.in_source(tokens, asked.source) for tokens in encoded]

    def _spoken(self, param: str) -> Languages:
        if self.languages is None:
            raise no_languages(param)
        return self.languages


def read_source_texts(
    settings: WorkerSettings,
    config: ModelConfig,
    generation: GenerationConfig,
    tokenizer: Tokenizer,
) -> SourceTexts | None:
    """None for a model without an encoder, and for one whose encoder reads no text but sound.

    Raises UnsupportedModel if nothing says with which token the decoder begins.
    """
    if not isinstance(config.encoder, TextInput):
        return None
    start = generation.decoder_start
    if not start or not all(0 <= id < config.vocab_size for id in start):
        raise UnsupportedModel(
            f"{config.path.parent} must say in generation_config.json or config.json with which"
            f" token its decoder begins: decoder_start_token_id, below {config.vocab_size}"
        )
    longest = settings.context_length or config.max_position_embeddings
    positions = source_positions(config.encoder, longest)
    return SourceTexts(positions, start, languages_of(tokenizer))


def source_of(token_ids: list[int]) -> Source:
    """Of a text that is checked: every id is in the vocabulary."""
    data = array("i", token_ids).tobytes()
    return Source(
        digest=blake2b(data, digest_size=16).digest(),
        length=len(token_ids),
        array=SentArray("<i4", (len(token_ids),), Raw(memoryview(data))),
    )
