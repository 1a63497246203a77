"""Builds a page as one document with its style and scripts inside. Their hashes form its content
security policy, so that nothing else can run in it and it can fetch nothing else."""

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SHARED = Path(__file__).with_name("shared")
SHARED_SCRIPTS = ("api.js", "format.js", "key_form.js", "explanation.js")


@dataclass(frozen=True, slots=True)
class Document:
    html: str
    headers: dict[str, str]


def read_document(page: Path, scripts: Sequence[str]) -> Document:
    """The folder `page` with its `index.html`, `style.css` and `scripts`, after the shared ones.

    Raises OSError where the package lacks one of these files.
    """
    style = _joined([SHARED / "style.css", page / "style.css"])
    shared = [SHARED / name for name in SHARED_SCRIPTS]
    script = _joined([*shared, *(page / name for name in scripts)])
    html = _joined([page / "index.html"])
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
        # Text never becomes markup: the browser refuses innerHTML and its like.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
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


def _joined(files: Sequence[Path]) -> str:
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


def _hash(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
