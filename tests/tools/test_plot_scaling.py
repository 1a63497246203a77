"""The picture of a run, from the file that the cluster's test writes."""

import subprocess
import sys
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

from tests.cluster.timeline import Sample, Timeline

STREAM = {"seconds": 2.0, "outcome": "whole", "replica": "a"}


def test_a_run_is_drawn_by_the_command_of_the_page(tmp_path: Path) -> None:
    run = Timeline(cast(Any, None), "pool", target=0.2, began=100.0)
    for at, pressure in enumerate((None, 0.1, 0.5)):  # unknown before the first decision
        run.samples.append(
            Sample(
                at=float(at),
                clients=1,
                replicas=2,
                ready=1,
                draining=0,
                desired=None if pressure is None else 2,
                pressure=pressure,
            )
        )
    streams = [
        {"started": 100.5 + n, "first_s": first, **STREAM} for n, first in enumerate((0.3, None))
    ]
    run.write(tmp_path / "run.json", streams, [])
    subprocess.run(
        [sys.executable, "-m", "tools.plot_scaling", tmp_path / "run.json", tmp_path / "p.svg"],
        check=True,
    )
    shapes = [one.tag.rpartition("}")[2] for one in ElementTree.parse(tmp_path / "p.svg").iter()]
    assert shapes.count("circle") == 1  # one stream had a first event
    assert shapes.count("path") == 4  # clients, wanted, ready, pressure
