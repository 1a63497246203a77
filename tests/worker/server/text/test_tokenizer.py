"""The tokenizer loaded without torch, compared with the class that transformers chooses."""

import asyncio
import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tokenizers import Tokenizer as PlainTokenizer
from tokenizers import decoders, pre_tokenizers, processors
from tokenizers.models import WordLevel
from transformers import AutoTokenizer

from pando_worker.models.errors import BrokenCheckpoint
from pando_worker.models.generation_config import read_generation_config
from pando_worker.server.errors import ApiError
from pando_worker.server.text.long_texts import PIECE_CHARS, Room, refuse_far_too_long
from pando_worker.server.text.tokenizer import INLINE_CHARS, Tokenizer
from tests.worker.server.process.worker_process import MODEL
from tests.worker.server.text.tokenizers_for_tests import byte_level, save, sentencepiece

TEXTS = ["the quick brown fox", " leading space", "</s> inside <s>", "世界 🙂", "a\n\n b  c", ""]
CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What does os.path.join do?"},
]


@pytest.mark.parametrize("kind", ["shipped", "byte_level", "sentencepiece", "adds_bos"])
async def test_ids_equal_those_of_auto_tokenizer(kind: str, tmp_path: Path) -> None:
    match kind:
        case "shipped":
            folder = MODEL
        case "byte_level":
            folder = save(byte_level(), tmp_path)
        case "sentencepiece":
            folder = save(sentencepiece(), tmp_path, tokenizer_class="PreTrainedTokenizerFast")
        case _:
            tokenizer = byte_level()  # as Llama 3 does
            tokenizer.post_processor = processors.TemplateProcessing(
                single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 0)]
            )
            folder = save(tokenizer, tmp_path)
    ours, theirs = Tokenizer(folder), AutoTokenizer.from_pretrained(folder)

    for text in TEXTS:
        assert (await ours.encode(text)).token_ids == theirs(text).input_ids
        plain = theirs(text, add_special_tokens=False).input_ids
        assert (await ours.encode(text, add_special_tokens=False)).token_ids == plain
        assert ours.decode(plain) == theirs.decode(plain)
    assert ours.eos_token_id == theirs.eos_token_id
    if kind in ("sentencepiece", "adds_bos"):
        assert (await ours.encode("x")).token_ids[0] == theirs.bos_token_id


async def test_chat_ids_equal_those_of_auto_tokenizer() -> None:
    prompt = await Tokenizer(MODEL).encode_chat(CHAT)
    theirs = AutoTokenizer.from_pretrained(MODEL)
    rendered = theirs.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    assert prompt.token_ids == theirs(rendered, add_special_tokens=False).input_ids
    assert prompt.num_bytes == len(rendered.encode())


async def test_a_continued_answer_stands_as_it_is_whatever_the_template_strips(
    tmp_path: Path,
) -> None:
    template = (
        "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}{{ '</s>' }}{% endfor %}"
        "{% if add_generation_prompt %}[assistant]{% endif %}"
    )
    ours = Tokenizer(save(byte_level(), tmp_path, chat_template=template))
    begun = " It  ends with blanks \n "
    prompt = await ours.encode_chat(CHAT[:1], answer=begun)
    assert ours.decode(prompt.token_ids) == f"[system]Be brief.</s>[assistant]{begun}"


async def test_a_truncating_tokenizer_file_does_not_cut_prompts(tmp_path: Path) -> None:
    tokenizer = byte_level()
    tokenizer.enable_truncation(4)
    ours = Tokenizer(save(tokenizer, tmp_path))
    assert len((await ours.encode("zq" * 20)).token_ids) > 4


async def test_a_long_prompt_does_not_hold_up_the_event_loop() -> None:
    tokenizer = Tokenizer(MODEL)
    text = "import os and sys " * (INLINE_CHARS // 4)
    encoding = asyncio.create_task(tokenizer.encode(text))
    turns = 0
    while not encoding.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 2, "encoded before the event loop had a turn"
    assert tokenizer.decode(encoding.result().token_ids) == text


@pytest.mark.parametrize("kind", ["shipped", "byte_level", "sentencepiece"])
@pytest.mark.parametrize("keep", [1, 300])
async def test_the_last_tokens_of_a_long_text_are_those_of_the_whole(
    kind: str, keep: int, tmp_path: Path
) -> None:
    made = {"byte_level": byte_level, "sentencepiece": sentencepiece}
    ours = Tokenizer(MODEL if kind == "shipped" else save(made[kind](), tmp_path))
    words = ["the ", "quick\n\n", "  fox", "世界 ", "os.path", "</s>"]
    text = "".join(random.Random(1).choices(words, k=40_000))
    whole = (await ours.encode(text)).token_ids
    cut = await ours.encode(text, Room(1000, keep, "prompt"))
    assert cut.token_ids[-keep:] == whole[-keep:]
    assert len(cut.token_ids) < len(whole) / 2
    assert cut.num_bytes < 16 * keep


async def test_a_text_far_longer_than_the_context_is_refused_by_its_beginning() -> None:
    text = "import os and sys " * 2_000_000
    started = time.process_time()
    with pytest.raises(ApiError, match="at most 1000 tokens") as caught:
        await Tokenizer(MODEL).encode(text, Room(1000, None, "prompt"))
    assert (caught.value.status, caught.value.param) == (400, "prompt")
    assert time.process_time() - started < 5  # all of it takes a minute


def test_a_refusal_names_no_more_characters_than_there_are() -> None:
    text = "x" * (PIECE_CHARS + 10)
    room = Room((len(text) - 1) // 2, None, "prompt")  # one token per character
    with pytest.raises(ApiError, match=f"the first {len(text)} characters alone"):
        refuse_far_too_long(text, room, lambda part: [0] * len(part))


async def test_a_conversation_far_longer_than_the_context_is_refused(tmp_path: Path) -> None:
    long = [{"role": "user", "content": "import os and sys " * 100_000}]
    with pytest.raises(ApiError, match="at most 1000 tokens") as caught:
        await Tokenizer(MODEL).encode_chat(long, Room(1000, None, "messages"))
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")


async def test_a_long_text_of_few_tokens_is_not_refused(tmp_path: Path) -> None:
    """Any run of unknown characters is one token."""
    tokenizer = WordLevel(vocab={"<unk>": 0, "a": 1}, unk_token="<unk>")
    ours = PlainTokenizer(tokenizer)
    ours.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    ours.decoder = decoders.ByteLevel()
    text = "x" * 1_000_000 + " a"
    prompt = await Tokenizer(save(ours, tmp_path)).encode(text, Room(30, None, "prompt"))
    assert len(prompt.token_ids) == 2


async def test_a_model_without_chat_template_says_so(tmp_path: Path) -> None:
    with pytest.raises(ApiError, match="no chat template") as caught:
        await Tokenizer(save(byte_level(), tmp_path)).encode_chat(CHAT)
    assert (caught.value.status, caught.value.param) == (400, "messages")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages[0].missing.field }}", "missing"),
        ("{{ messages[0]['content'] + 1 }}", "str"),
    ],
)
async def test_what_a_template_refuses_is_a_bad_request(
    template: str, message: str, tmp_path: Path
) -> None:
    tokenizer = Tokenizer(save(byte_level(), tmp_path, chat_template=template))
    with pytest.raises(ApiError, match=message) as caught:
        await tokenizer.encode_chat(CHAT)
    assert caught.value.status == 400


async def test_a_request_cannot_bring_its_own_template() -> None:
    for name in ("chat_template", "messages", "tools", "add_generation_prompt"):
        with pytest.raises(ApiError, match=f"'{name}' cannot be set") as caught:
            await Tokenizer(MODEL).encode_chat(CHAT, template_kwargs={name: "x"})
        assert caught.value.param == "chat_template_kwargs"


def test_a_folder_without_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokenCheckpoint, match="tokenizer"):
        Tokenizer(tmp_path)


def test_the_http_process_does_not_import_torch() -> None:
    code = (
        "import sys; from pathlib import Path; import pando_worker.server.process.lifecycle as l;"
        f"l.Tokenizer(Path({str(MODEL)!r})); print('torch' in sys.modules, 'redis' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False", "False"]


def test_eos_ids_come_from_all_files_where_the_model_has_them(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text(
        json.dumps({"eos_token_id": [7, 9, 1000], "temperature": 0.6, "top_k": 20})
    )
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": [7, -1]}))
    found = read_generation_config(tmp_path, eos_token_id=3, vocab_size=1000)
    assert found.eos_token_ids == (3, 7, 9)
    assert (found.temperature, found.top_k, found.top_p) == (0.6, 20, 1.0)
    overrides = {"temperature": 0.0, "top_k": None, "min_p": 0.1}
    found = read_generation_config(tmp_path, 3, 1000, overrides)
    assert (found.temperature, found.top_k, found.min_p) == (0.0, 20, 0.1)


def test_a_malformed_generation_config_is_refused(tmp_path: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"temperature": "hot"}')
    with pytest.raises(BrokenCheckpoint, match="temperature"):
        read_generation_config(tmp_path, eos_token_id=None, vocab_size=10)
