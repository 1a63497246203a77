"""Grammars for tokenizers that cannot spell any text, as T5's, and for outputs that are texts of
their own, which SentencePiece begins with a space."""

import random
import re
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import Unigram

from pando_worker.grammar.compiler import GrammarCompiler
from pando_worker.grammar.errors import GrammarError
from pando_worker.tokenizer.detokenizer import Detokenizer, Vocabulary
from tests.worker.grammar.world import World
from tests.worker.server.text import tokenizers_for_tests as tiny

LACKS = "{}~é"


@pytest.fixture(scope="module", params=[True, False], ids=["whole", "continued"])
def is_whole(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def world(is_whole: bool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    pieces = [*'abcdefghijklmnopqrstuvwxyz0123456789,.:"[]-', "▁", "▁the", "▁cat", "▁yes", "no"]
    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    model = Unigram([*special, *((piece, -2.0) for piece in pieces)], unk_id=2)
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer.add_special_tokens([name for name, _ in special])
    folder = tiny.save(tokenizer, tmp_path_factory.mktemp("model"))
    size = tokenizer.get_vocab_size()
    with closing(GrammarCompiler(folder, size, [1], is_whole=is_whole)) as compiler:
        yield World(compiler, tokenizer, [1])


def outputs(world: World, is_whole: bool, **constraint: Any) -> set[str]:
    """Texts of random outputs that follow the grammar to its end."""
    vocabulary, found = Vocabulary(world.tokenizer), set()
    for seed in range(12):
        grammar, draw = world.grammar(**constraint), random.Random(seed)
        reader = Detokenizer(vocabulary, is_whole=is_whole)
        text = ""
        while not grammar.is_finished:
            assert not grammar.fast_forward()
            token = draw.choice(sorted(world.allowed(grammar)))
            assert grammar.accept(token)
            text += reader.push(token)
        found.add(text)
    return found


@pytest.mark.parametrize(
    ("constraint", "texts"),
    [
        ({"guided_choice": ["yes", "no"]}, {"yes", "no"}),
        ({"guided_choice": ["the cat", "é"]}, {"the cat"}),
        ({"regex": "a[{]?b"}, {"ab"}),
        ({"guided_json": {"enum": ["yes", "a"]}}, {'"yes"', '"a"'}),
    ],
)
def test_outputs_are_what_the_tokens_can_spell_of_the_grammar(
    world: World, is_whole: bool, constraint: dict[str, Any], texts: set[str]
) -> None:
    assert outputs(world, is_whole, **constraint) == texts


def test_an_array_is_json(world: World, is_whole: bool) -> None:
    schema = {"type": "array", "items": {"enum": [1, 22]}, "minItems": 2, "maxItems": 2}
    for text in outputs(world, is_whole, guided_json=schema):
        assert re.fullmatch(r"\[(1|22), (1|22)\]", text), text


@pytest.mark.parametrize(
    "constraint",
    [{"regex": "[{]the"}, {"guided_choice": list(LACKS)}, {"guided_json": {"type": "object"}}],
)
def test_what_no_tokens_spell_is_an_error(world: World, constraint: dict[str, Any]) -> None:
    with pytest.raises(GrammarError, match="no finite text of the model's tokens"):
        world.grammar(**constraint)
