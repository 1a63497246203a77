"""Languages of models that translate (mBART): the source's language is a token of the text that the
encoder reads, the target's is one of those with which the decoder begins.

Requests name them in `src_lang` and `tgt_lang`, as in transformers' translation pipeline.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pando_worker.server.errors import ApiError, bad_request
from pando_worker.server.text.tokenizer import Tokenizer

_CODE = re.compile(rb"[a-z]{2}_[A-Z]{2}")


@dataclass(frozen=True, slots=True)
class AskedLanguages:
    """What a request names; None: what the model's files say."""

    source: str | None = None
    target: str | None = None

    @property
    def first(self) -> str | None:
        """The first field that names one."""
        if self.source is not None:
            return "src_lang"
        return None if self.target is None else "tgt_lang"


UNASKED = AskedLanguages()


def no_languages(param: str) -> ApiError:
    """For a model that does not translate."""
    return bad_request(f"this model's texts have no languages: leave {param} out", param)


@dataclass(frozen=True, slots=True)
class Languages:
    """
    Attributes:
        ids: tokens by their codes, such as "en_XX"
        place: of the language in the tokens of a text: 0 or -1
    """

    ids: Mapping[str, int]
    place: int

    def in_source(self, tokens: Sequence[int], code: str) -> list[int]:
        """A tokenized text, with the token of this language.

        Raises:
            ApiError: 400, the model lacks this language.
        """
        spoken = list(tokens)
        spoken[self.place] = self._id(code, "src_lang")
        return spoken

    def in_target(self, start: Sequence[int], code: str) -> list[int]:
        """The tokens with which the decoder begins, for an output in this language.

        mBART's decoder begins with the language alone, mBART-50's with a token in front of it.

        Raises:
            ApiError: 400, as `in_source`.
        """
        language = self._id(code, "tgt_lang")
        return [language] if start[0] in self.ids.values() else [start[0], language]

    def _id(self, code: str, param: str) -> int:
        found = self.ids.get(code)
        if found is None:
            known = ", ".join(sorted(self.ids))
            raise bad_request(f"this model has no {param} {code[:20]!r}; it has {known}", param)
        return found


def languages_of(tokenizer: Tokenizer) -> Languages | None:
    """None for a tokenizer that puts no language into its texts."""
    ids = {
        name.decode(): id
        for id, name in tokenizer.vocabulary.special.items()
        if _CODE.fullmatch(name)
    }
    around = tokenizer.around_text
    places = [place for place in (0, -1) if around and around[place] in ids.values()]
    return Languages(ids, places[0]) if places else None
