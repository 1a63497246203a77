"""Run by `helm test`: lists the router's models and sends a chat request to each.

ROUTER_URL is the router, API_KEY an API key if the router requires one. If it requires a key and
none is given, the test is that the router refuses. A pool at zero gets time to wake up.
"""

import json
import os
import sys
import urllib.error
import urllib.request

TIMEOUT_S = 240.0


def call(path: str, body: dict[str, object] | None = None) -> dict[str, object]:
    headers = {"content-type": "application/json", "x-request-timeout": str(TIMEOUT_S)}
    if key := os.environ.get("API_KEY"):
        headers["authorization"] = f"Bearer {key}"
    request = urllib.request.Request(
        os.environ["ROUTER_URL"] + path,
        data=json.dumps(body).encode() if body else None,
        headers=headers,
    )
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
        answer: dict[str, object] = json.load(response)
        return answer


def is_refused() -> bool:
    try:
        call("/v1/models")
    except urllib.error.HTTPError as error:
        return error.code == 401
    return False


def main() -> int:
    if os.environ["KEYS_ARE_ASKED_FOR"] == "yes" and "API_KEY" not in os.environ:
        print("without an API key:", "refused" if is_refused() else "NOT refused")
        return 0 if is_refused() else 1
    models = call("/v1/models")["data"]
    assert isinstance(models, list)
    if not models:
        print("the router has no model: create a pool")
        return 1
    for model in models:
        chat = call(
            "/v1/chat/completions",
            {
                "model": model["id"],
                "messages": [{"role": "user", "content": "Say hello."}],
                "max_tokens": 16,
            },
        )
        print(f"{model['id']}:", json.dumps(chat["choices"]), json.dumps(chat["usage"]))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except urllib.error.HTTPError as error:
        sys.exit(f"{error.url}: {error.code} {error.read().decode(errors='replace')}")
    except OSError as error:
        sys.exit(f"{os.environ['ROUTER_URL']}: {error}")
