"""Streams a transcription with the `openai` client.

python -m examples.audio.listen FILE --model whisper-base
"""

import argparse
from pathlib import Path

import openai


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--model", default="whisper-base")
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    args = parser.parse_args()
    client = openai.OpenAI(base_url=args.url, api_key="none")
    stream = client.audio.transcriptions.create(model=args.model, file=args.file, stream=True)
    for event in stream:
        if event.type == "transcript.text.delta":
            print(event.delta, end="", flush=True)
    print()


if __name__ == "__main__":
    main()
