"""Asks a running Pando about a picture, twice: python -m examples.vision.ask

Start it first: make up ARGS="--model examples/vision/shapes"
"""

import argparse
import base64
from pathlib import Path

import openai
from openai.types.chat import ChatCompletionContentPartParam, ChatCompletionMessageParam

PICTURE = Path(__file__).with_name("picture.png")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--url", default="http://127.0.0.1:8000/v1")
    arguments.add_argument("--picture", type=Path, default=PICTURE)
    arguments.add_argument("questions", nargs="*")
    options = arguments.parse_args()
    questions = options.questions or ["What is in the picture?", "How many squares are there?"]

    client = openai.OpenAI(base_url=options.url, api_key="none")
    [model] = [model.id for model in client.models.list()]
    encoded = base64.b64encode(options.picture.read_bytes()).decode()
    picture: ChatCompletionContentPartParam = {
        "type": "image_url",
        "image_url": {"url": f"data:image/png;base64,{encoded}"},
    }
    messages: list[ChatCompletionMessageParam] = []
    for question in questions:
        asked: ChatCompletionContentPartParam = {"type": "text", "text": question}
        content = [asked] if messages else [picture, asked]
        messages.append({"role": "user", "content": content})
        answer = client.chat.completions.create(model=model, messages=messages)
        text = answer.choices[0].message.content or ""
        usage = answer.usage
        assert usage is not None
        assert usage.prompt_tokens_details is not None
        print(
            f"{question}\n  {text}\n"
            f"  {usage.prompt_tokens} prompt tokens, "
            f"{usage.prompt_tokens_details.cached_tokens} of them cached"
        )
        messages.append({"role": "assistant", "content": text})


if __name__ == "__main__":
    main()
