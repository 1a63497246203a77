"""Hostile requests and the status that each gets, from a router and from a worker.

To add one, append a `Row`. The test sends it to both, beside normal requests.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.e2e.conftest import MODEL

CHATS, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
RESPONSES, MESSAGES, SPEECH = "/v1/responses", "/v1/messages", "/v1/audio/transcriptions"
LOAD, TOKENIZE = "/v1/load_lora_adapter", "/tokenize"
PROBE = b"GET /health_generate HTTP/1.1"
ITEMS = b"GET /v1/responses/%s/input_items HTTP/1.1"
LOAD_LINE = b"GET /load?" + b"a=b&" * 10_000 + b" HTTP/1.1"
BOUNDARY = b"multipart/form-data; boundary=x"
CHUNKED, LAST_CHUNK = b"transfer-encoding: chunked", b"0\r\n\r\n"
CLOSE = b"connection: close"
HIDDEN = b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    data: Callable[[], bytes]  # what the client sends
    status: int  # from both
    at_worker: int | None = None  # from the worker, if it is another


def raw(data: bytes) -> Callable[[], bytes]:
    return lambda: data


def get(*lines: bytes, first: bytes = b"GET /healthz HTTP/1.1") -> Callable[[], bytes]:
    return raw(b"\r\n".join((first, *lines)) + b"\r\n\r\n")


def post(path: str, body: bytes, *headers: bytes) -> bytes:
    length = b"content-length: %d" % len(body)
    lines = (f"POST {path} HTTP/1.1".encode(), b"host: x", length, *headers)
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def chunked(body: bytes, *headers: bytes) -> Callable[[], bytes]:
    return posted(CHUNKED, *headers, body=body)


def posted(*headers: bytes, body: bytes) -> Callable[[], bytes]:
    """With no header that says where the body ends, but these."""
    lines = (f"POST {COMPLETIONS} HTTP/1.1".encode(), b"host: x", *headers)
    return raw(b"\r\n".join(lines) + b"\r\n\r\n" + body)


def hidden(*headers: bytes, body: bytes = LAST_CHUNK) -> Callable[[], bytes]:
    """A request behind whose end, as one server may see it, is another one."""
    return posted(CLOSE, *headers, body=body + HIDDEN)


def text(path: str, body: bytes, *headers: bytes) -> Callable[[], bytes]:
    return lambda: post(path, body, *headers)


def sent(path: str, **fields: Any) -> Callable[[], bytes]:
    return lambda: post(path, json.dumps({"model": MODEL, **fields}).encode())


def many(path: str, field: str, value: str, count: int) -> Callable[[], bytes]:
    """A list of so many equal values."""
    return lambda: post(
        path, f'{{"model":"{MODEL}","{field}":[{",".join([value] * count)}]}}'.encode()
    )


def parts(count: int) -> Callable[[], bytes]:
    content = ",".join(['{"type":"text","text":"x"}'] * count)
    message = f'{{"role":"user","content":[{content}]}}'
    return lambda: post(CHATS, f'{{"model":"{MODEL}","messages":[{message}]}}'.encode())


def turns(path: str, count: int) -> Callable[[], bytes]:
    """A conversation with Anthropic's fields, which takes turns."""
    message = '{"role":"user","content":"x"},{"role":"assistant","content":"y"}'
    messages = ",".join([message] * (count // 2))
    body = f'{{"model":"{MODEL}","max_tokens":1,"messages":[{messages}]}}'
    return lambda: post(path, body.encode())


def seen(url: str) -> dict[str, Any]:
    """A message of OpenAI's responses with an image."""
    return {"role": "user", "content": [{"type": "input_image", "image_url": url}]}


def form(kind: bytes, body: bytes) -> Callable[[], bytes]:
    return lambda: post(SPEECH, body, b"content-type: " + kind)


def fields(count: int) -> Callable[[], bytes]:
    one = b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\nb\r\n'
    return form(BOUNDARY, one * count + b"--x--\r\n")


def completion(**fields: Any) -> Callable[[], bytes]:
    return sent(COMPLETIONS, **{"prompt": "x", "max_tokens": 1, **fields})


def chat(content: Any) -> Callable[[], bytes]:
    return sent(CHATS, messages=[{"role": "user", "content": content}], max_tokens=1)


def chunk(extension: bytes) -> bytes:
    """The simple body."""
    return b"%x%b\r\n%b\r\n" % (len(SIMPLE), extension, SIMPLE)


SIMPLE = f'{{"model":"{MODEL}","prompt":"x","max_tokens":1}}'.encode()
LENGTH = b"content-length: %d" % len(SIMPLE)
INTERSECTION = "start: T\nT: /(?s:.*[^<]([^a]{10,}((ab*c|a*)|.*){0,100}).*)/ & ~/(?s:(\\w+.)*)/"
MESSAGE = '{"role":"user","content":"x"}'

# As in the literature: of two servers in a row, the first one goes by CL or TE, the second by the
# other (CL: content-length, TE: transfer-encoding, 0: it takes no body).
SMUGGLING = [
    Row("CL.TE", hidden(b"content-length: %d" % len(LAST_CHUNK + HIDDEN), CHUNKED), 400),
    Row(
        "TE.CL",
        hidden(CHUNKED, b"content-length: 4", body=b"%x\r\n" % len(HIDDEN)),
        400,
    ),
    Row("TE.TE: chunked twice", hidden(CHUNKED, CHUNKED), 400),
    Row("TE.TE: chunked, then another", hidden(CHUNKED, b"transfer-encoding: cow"), 400),
    Row("TE.TE: another, then chunked", hidden(b"transfer-encoding: identity", CHUNKED), 501),
    Row("TE.TE: a list that begins with chunked", hidden(CHUNKED + b", identity"), 400),
    Row("TE.TE: a list that ends with chunked", hidden(b"transfer-encoding: gzip, chunked"), 501),
    Row("TE.TE: xchunked", hidden(b"transfer-encoding: xchunked"), 501),
    Row("TE.TE: quotes", hidden(b'transfer-encoding: "chunked"'), 501),
    Row("TE.TE: a parameter", hidden(CHUNKED + b";q=1"), 501),
    Row("TE.TE: no value", hidden(b"transfer-encoding:"), 400),
    Row("TE.TE: a vertical tab", hidden(b"transfer-encoding: \x0bchunked"), 400),
    Row("TE.TE: a blank before the colon", hidden(b"transfer-encoding : chunked"), 400),
    Row("TE.TE: behind a bare line feed", hidden(b"x-a: b\n" + CHUNKED), 400),
    Row("TE.TE: behind a bare carriage return", hidden(b"x-a: b\r" + CHUNKED), 400),
    Row("TE.TE: obs-fold", hidden(b"transfer-encoding:", b" chunked"), 400),
    Row(
        "chunks in HTTP/1.0",
        raw(b"POST / HTTP/1.0\r\n" + CHUNKED + b"\r\n\r\n" + LAST_CHUNK + HIDDEN),
        400,
    ),
    Row("CL.CL", hidden(b"content-length: 0", b"content-length: 1", body=b"a"), 400),
    Row("CL.CL: the same twice", hidden(*[b"content-length: 1"] * 2, body=b"a"), 400),
    Row("CL: a list", hidden(b"content-length: 1, 1", body=b"a"), 400),
    Row("CL: a sign", hidden(b"content-length: +1", body=b"a"), 400),
    Row("CL: negative", hidden(b"content-length: -1", body=b"a"), 400),
    Row("CL: hexadecimal", hidden(b"content-length: 0x1", body=b"a"), 400),
    Row("CL: 30 digits", hidden(b"content-length: " + b"9" * 30, body=b"a"), 400),
    Row("CL: a blank before the colon", hidden(b"content-length : 0", body=b""), 400),
    Row(
        "CL and TE: underscores",
        hidden(LENGTH, b"content_length: 0", b"transfer_encoding: chunked", body=SIMPLE),
        200,
    ),
    Row(
        "CL.0",
        raw(HIDDEN[:-2] + CLOSE + b"\r\ncontent-length: %d\r\n\r\n" % len(HIDDEN) + HIDDEN),
        200,
    ),
    Row("a chunk extension", hidden(CHUNKED, body=chunk(b";a=b") + LAST_CHUNK), 200),
    Row("a quoted chunk extension", hidden(CHUNKED, body=chunk(b';a="b;c"') + LAST_CHUNK), 200),
    *(
        Row(f"a chunk extension with {what}", hidden(CHUNKED, body=chunk(ext) + LAST_CHUNK), 400)
        for what, ext in {
            "no name": b";",
            "a blank before it": b" ;a=b",
            "a bare line feed": b";a\n",
            "a bare carriage return": b";a\r",
            "a quoted end of line": b';a="\r\n"',
            "a NUL": b";a\0",
        }.items()
    ),
    *(
        Row(f"a chunk's size with {what}", hidden(CHUNKED, body=size + b"\r\n"), 400)
        for what, size in {
            "a blank": b"1 ",
            "0x": b"0x1",
            "a sign": b"+1",
            "an underscore": b"1_0",
            "17 digits": b"1" * 17,
            "no digit": b"xyz",
        }.items()
    ),
    Row("a bare line feed behind a chunk's size", hidden(CHUNKED, body=b"1\nx\r\n"), 400),
    Row("a bare line feed behind a chunk", hidden(CHUNKED, body=b"1\r\nx\n"), 400),
    Row("a bare line feed behind the last chunk", hidden(CHUNKED, body=b"0\n\n"), 400),
    Row("a chunk longer than its size", hidden(CHUNKED, body=b"1\r\nxab\r\n"), 400),
    Row("a length in the trailer", hidden(CHUNKED, body=b"0\r\ncontent-length: 9\r\n\r\n"), 400),
    Row("chunks in the trailer", hidden(CHUNKED, body=b"0\r\n" + CHUNKED + b"\r\n\r\n"), 400),
    Row("bare line feeds", raw(HIDDEN.replace(b"\r\n", b"\n") * 2), 400),
    Row("a bare line feed", raw(HIDDEN.replace(b"\r\n", b"\n", 1) + HIDDEN), 400),
    Row("bare carriage returns", raw(HIDDEN.replace(b"\r\n", b"\r") * 2), 400),
    Row("obs-fold", get(b"host: x", b"x-a: b", b" c"), 400),
]

FRAMING = [
    Row("no host", get(b"accept: */*"), 400),
    Row("two hosts", get(b"host: x", b"host: y"), 400),
    Row("HTTP/0.9", raw(b"GET /healthz\r\n\r\n"), 505),
    Row("HTTP/3.0", get(b"host: x", first=b"GET /healthz HTTP/3.0"), 400),
    Row("a NUL in a header", get(b"host: x", b"x-a: \x00"), 400),
    Row(
        "chunks of one byte",
        chunked(b"".join(b"1;" + b"e" * 99 + b"\r\nx\r\n" for _ in range(2000))),
        400,
    ),
    Row("300 headers", get(b"host: x", *[b"x-a: b"] * 300), 431),
    Row("a long header", get(b"host: x", b"x-a: " + b"b" * 100_000), 431),
    Row("a long path", get(b"host: x", first=b"GET /" + b"a" * 100_000 + b" HTTP/1.1"), 431),
    Row("CONNECT", get(b"host: x", first=b"CONNECT x:1 HTTP/1.1"), 501),
    Row("a compressed body", text(COMPLETIONS, SIMPLE, b"content-encoding: gzip"), 415),
    Row("escapes in the path", get(b"host: x", first=b"POST /%1b%5b31mEVIL%0d%0a HTTP/1.1"), 404),
]

VALUES = [
    Row("300,000 ids to detokenize", many("/detokenize", "tokens", "1", 300_000), 413),
    Row("100,000 ids to detokenize", many("/detokenize", "tokens", "1", 100_000), 400),
    Row("1,000,000 messages to tokenize", many(TOKENIZE, "messages", MESSAGE, 1_000_000), 413),
    Row("20,000 messages to tokenize", many(TOKENIZE, "messages", MESSAGE, 20_000), 400),
    Row("2 MB to tokenize", sent(TOKENIZE, prompt="x " * 1_000_000), 400),
    Row("tools of numbers", sent(TOKENIZE, messages=[json.loads(MESSAGE)], tools=[7]), 400),
    Row("an effort of lists", text(TOKENIZE, b'{"reasoning_effort":' + b"[" * 30_000), 400),
    Row("1,000,000 messages", many(CHATS, "messages", MESSAGE, 1_000_000), 413),
    Row("20,000 messages", many(CHATS, "messages", MESSAGE, 20_000), 400),
    Row("1,000,000 prompt ids", many(COMPLETIONS, "prompt", "1", 1_000_000), 413),
    Row("200,000 prompt ids", many(COMPLETIONS, "prompt", "1", 200_000), 400),
    Row("1,000,000 prompts", many(COMPLETIONS, "prompt", '"x"', 1_000_000), 413),
    Row("200,000 prompts", many(COMPLETIONS, "prompt", '"x"', 200_000), 400),
    Row("1,000,000 inputs", many(EMBEDDINGS, "input", '"x"', 1_000_000), 413),
    Row("200,000 inputs", many(EMBEDDINGS, "input", '"x"', 200_000), 400),
    Row("1,000,000 documents", many("/v1/rerank", "documents", '"x"', 1_000_000), 413),
    Row("documents of numbers", sent("/v1/rerank", query="x", documents=[1, 2]), 400),
    Row("no documents", sent("/rerank", query="x", documents=[]), 400),
    Row("200,000 texts to score", many("/v1/score", "text_2", '"x"', 200_000), 400),
    Row(
        "texts to score that do not pair up",
        sent("/score", text_1=["a", "b"], text_2=["c"] * 3),
        400,
    ),
    Row("1,000,000 texts to classify", many("/classify", "input", '"x"', 1_000_000), 413),
    Row("nothing to classify", sent("/v1/classify"), 400),
    Row("1,000,000 parts", parts(1_000_000), 413),
    Row("1,000,000 unknown values", many(COMPLETIONS, "unknown", "1", 1_000_000), 413),
    Row("60,000 nested lists", text(COMPLETIONS, b'{"model":"m","prompt":' + b"[" * 60_000), 400),
    Row("1,000,000 nested lists", text(COMPLETIONS, b"[" * 1_000_000), 413),
]

JSON = [
    Row("no JSON", text(COMPLETIONS, b"{"), 400),
    Row("no UTF-8", text(COMPLETIONS, SIMPLE.replace(b'"x"', b'"\xff"')), 400),
    Row("half a surrogate pair", text(COMPLETIONS, SIMPLE.replace(b'"x"', b'"\\ud800"')), 400),
    Row("1e999", text(COMPLETIONS, SIMPLE.replace(b'"x",', b'"x","temperature":1e999,')), 400),
    Row("a number of 5,000 digits", completion(max_tokens=10**4000), 400),
    Row("a NUL", completion(prompt="\0"), 200),
    Row("a key twice", text(COMPLETIONS, SIMPLE.replace(b"{", b'{"prompt":"y",')), 200),
    Row("marks on one letter", completion(prompt="e" + "\u0301" * 100), 200),
    Row(
        "a schema of references",
        completion(guided_json={"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}),
        400,
    ),
    Row("an intersection of patterns", completion(guided_grammar=INTERSECTION), 400),
    Row("a costly regex", completion(guided_regex="(a{1000}b){1000}"), 400),
    Row(
        "a URL within",
        chat([{"type": "image_url", "image_url": {"url": "http://169.254.169.254/"}}]),
        400,
    ),
    Row(
        "a file within",
        chat([{"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}]),
        400,
    ),
]

OTHERS = [
    Row("1,000,000 items", many(RESPONSES, "input", MESSAGE, 1_000_000), 413),
    Row("20,000 items", many(RESPONSES, "input", MESSAGE, 20_000), 400),
    Row("1,000,000 of Anthropic's messages", many(MESSAGES, "messages", MESSAGE, 1_000_000), 413),
    Row("20,000 of Anthropic's messages", turns(MESSAGES, 20_000), 400),
    Row("20,000 messages to count", turns(f"{MESSAGES}/count_tokens", 20_000), 400),
    Row("lists in Anthropic's messages", text(MESSAGES, b'{"messages":' + b"[" * 30_000), 400),
    Row("lists in items", text(RESPONSES, b'{"input":' + b"[" * 30_000), 400),
    Row("no UTF-8 for Anthropic's API", text(MESSAGES, b'{"model":"\xff"}'), 400),
    Row("a URL in a response", sent(RESPONSES, input=[seen("http://169.254.169.254/")]), 400),
    Row("a response with a path for its id", sent(f"{RESPONSES}/..%2f..%2fmetrics/cancel"), 404),
    Row("items of a path", get(b"host: x", first=ITEMS % b"..%2f..%2fmetrics"), 404),
    Row("items of a long id", get(b"host: x", first=ITEMS % (b"resp_" + b"a" * 20_000)), 404),
    Row("items that are posted", sent(f"{RESPONSES}/resp_1/input_items", limit=10**400), 405),
    Row("a load that is posted", many("/load", "x", "1", 1_000_000), 413),
    Row("a long question for the load", get(b"host: x", first=LOAD_LINE), 404, at_worker=200),
    Row("settings that are posted", sent("/get_server_info", x=1), 404, at_worker=405),
    Row("settings of a path", get(b"host: x", first=b"GET /server_info/../metrics HTTP/1.1"), 404),
    Row("a form without a boundary", form(b"multipart/form-data", b"--x--"), 400),
    Row("a form of 20,000 fields", fields(20_000), 400),
    Row("a form that never ends a head", form(BOUNDARY, b"--x\r\n" + b"a" * 100_000), 400),
    Row("sound that is JSON", sent(SPEECH, file="x"), 400),
    Row("a token for a cache", sent("/flush_cache"), 404, at_worker=401),
    Row("another client's request", sent("/abort_request", rid="x"), 404, at_worker=401),
    Row(
        "1,000,000 names of an adapter",
        many(LOAD, "lora_path", '"x"', 1_000_000),
        413,
        at_worker=401,
    ),
    Row(
        "an adapter's name in a list",
        many(LOAD, "lora_name", '"x"', 9),
        400,
        401,
    ),
    Row("a probe that generates", get(b"host: x", first=PROBE), 404, at_worker=200),
    Row("a probe that is posted", sent("/health_generate", text="x"), 404, at_worker=405),
    Row("no adapter", sent("/v1/unload_lora_adapter", lora_name=7), 400, at_worker=401),
]

ROWS = SMUGGLING + FRAMING + VALUES + JSON + OTHERS
