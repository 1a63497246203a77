"""A worker's process: `python -m tests.worker.server.main JSON-SETTINGS [stand-in]`.

Imports little: it is started often, and its scheduler process imports it again.
"""

import json
import logging
import sys

from pando_worker.serve import run
from pando_worker.settings import WorkerSettings
from tests.worker.server.stand_in import run_stand_in


def configure_logging() -> None:
    logging.basicConfig(level="INFO", format="%(levelname)s %(name)s %(message)s")


if __name__ == "__main__":
    configure_logging()
    settings = WorkerSettings.model_validate(json.loads(sys.argv[1]))
    if sys.argv[2:] == ["stand-in"]:
        sys.exit(run(settings, configure_logging, run_stand_in))
    sys.exit(run(settings, configure_logging))
