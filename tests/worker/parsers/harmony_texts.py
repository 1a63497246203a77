"""Outputs of gpt-oss as `openai-harmony` renders them, and as it reads them again, as JSON; runs in
an environment that has that package. The first argument is its folder of encodings."""

import json
import os
import random
import sys
from typing import Any

os.environ["TIKTOKEN_ENCODINGS_BASE"] = sys.argv[1]

from openai_harmony import (
    HarmonyEncodingName,
    Message,
    Role,
    load_harmony_encoding,
)

ENCODING = load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS)
WORDS = ["Ulm", "naïve", "日本", "{", '"a": 1', "<think>", "to=functions.x", "🙂", "\n\n", "json"]
_START = "<|start|>assistant"


def said(rng: random.Random) -> str:
    """Without white space around it, which Pando drops."""
    return " ".join([*rng.choices(WORDS, k=rng.randint(1, 6)), "end."]).strip()


def output(rng: random.Random) -> list[Message]:
    """Reasoning and words before a call, each present or not, then the answer or one call."""
    channels = [name for name in ("analysis", "commentary") if rng.random() < 0.7]
    messages = [assistant(said(rng), channel) for channel in channels]
    if rng.random() < 0.5:
        return [*messages, assistant(said(rng), "final")]
    arguments = json.dumps({"city": said(rng), "days": rng.randint(0, 9)}, ensure_ascii=False)
    call = assistant(arguments, "commentary").with_recipient("functions.weather")
    return [*messages, call.with_content_type("<|constrain|>json")]


def assistant(text: str, channel: str) -> Message:
    return Message.from_role_and_content(Role.ASSISTANT, text).with_channel(channel)


def case(rng: random.Random) -> dict[str, Any]:
    tokens = [token for message in output(rng) for token in ENCODING.render(message)]
    text = ENCODING.decode_utf8(tokens).removeprefix(_START)  # the prompt ends with it
    tokens = ENCODING.encode(text, allowed_special="all")
    read = ENCODING.parse_messages_from_completion_tokens(tokens, Role.ASSISTANT)
    return {
        "text": text,
        "messages": [
            {"channel": one.channel, "to": one.recipient, "text": one.content[0].text}
            for one in read
        ],
    }


def main() -> None:
    rng = random.Random(7)
    print(json.dumps([case(rng) for _ in range(200)]))


main()
