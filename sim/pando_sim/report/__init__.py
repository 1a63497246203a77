"""Reports of runs: a `Digest` of each, of bounded size; from digests the terminal's table, JSON,
and an HTML page. Only CSV files have every request.

The process that simulates makes the digest and writes the CSV files, so that requests never move
between processes. It needs no matplotlib: `page.page` alone, which makes the HTML page, imports it.
"""

from pando_sim.report.about import About
from pando_sim.report.digest import Digest, digest
from pando_sim.report.files import write_requests, write_results, write_samples
from pando_sim.report.terminal import comparison_table

__all__ = [
    "About",
    "Digest",
    "comparison_table",
    "digest",
    "write_requests",
    "write_results",
    "write_samples",
]
