"""Requests as bytes."""

CHUNKED = b"transfer-encoding: chunked"
GET = b"GET %b HTTP/1.1\r\nhost: x\r\n\r\n"


def post(*headers: bytes, body: bytes = b"", version: bytes = b"1.1") -> bytes:
    lines = [b"POST / HTTP/" + version, b"host: x", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body
