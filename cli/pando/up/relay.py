"""Passes the output of a fleet's parts on to the terminal or the log."""

import sys

from pando.logs import LogSettings, renderer
from pando.up.process import Relay, log_record


def log_relay(log: LogSettings) -> Relay:
    """Passes the parts' output on to standard error, with the name of the part.

    The parts log JSON, which is rendered here where people read. Redis's lines are shown for
    debugging only: at each start it warns of what matters not here.
    """
    render = renderer(log)

    def relay(name: str, line: str) -> None:
        if name != "redis" or log.level == "debug":
            record = {"process": name, **log_record(line)}
            print(render(record), file=sys.stderr, flush=True)

    return relay
