"""The page as one document: its style and scripts are written into it, and their hashes into the
policy that it is served with, so that nothing else can run in it or be fetched by it."""

import base64
import hashlib
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).with_name("page")
SCRIPTS = ("api.js", "format.js", "chart.js", "replicas.js", "explain.js", "main.js")


@dataclass(frozen=True, slots=True)
class Document:
    html: str
    headers: dict[str, str]


def read_page() -> Document:
    style = _read("style.css")
    script = "\n".join(_read(name) for name in SCRIPTS)
    html = _read("index.html")
    html = html.replace("/* style */", style).replace("/* script */", script)
    policy = (
        "default-src 'none'",
        f"script-src {_hash(script)}",
        f"style-src {_hash(style)}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
    return Document(
        html,
        {
            "content-security-policy": "; ".join(policy),
            "cache-control": "no-cache",
            "referrer-policy": "no-referrer",
            "x-content-type-options": "nosniff",
        },
    )


def _read(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
