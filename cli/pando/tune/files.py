"""The files of a search: report, findings, manifest and patch."""

import json
from pathlib import Path

import yaml

from pando_sim.tuning.findings import Findings, write_findings
from pando_sim.tuning.page.page import write_page
from pando_sim.tuning.space import Document

REPORT, RESULTS, MANIFEST, PATCH = "report.html", "results.json", "pool.yaml", "patch.json"


def write_files(folder: Path, findings: Findings, document: Document) -> None:
    """`document`: the recommended manifest. Raises OSError."""
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True)
    write_findings(folder / RESULTS, findings)
    write_page(folder / REPORT, findings, text)
    (folder / MANIFEST).write_text(text, encoding="utf-8")
    patch = json.loads(findings.patch) if findings.patch else {}
    (folder / PATCH).write_text(json.dumps(patch, indent=1) + "\n", encoding="utf-8")
