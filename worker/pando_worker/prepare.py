"""`python -m pando_worker.prepare MODEL`: does the work of a first start in advance.

An install calls it, so that even the first start finds everything in the user's cache: the C++
kernels, the model directory of a GGUF file, and the tokenizer's essentials.
"""

import sys

from pando_worker.cpu.build import KernelsUnavailable
from pando_worker.cpu.library import library
from pando_worker.models.errors import ModelError
from pando_worker.models.loading.hub import resolve_model
from pando_worker.tokenizer.essentials import load_essentials


def main(model: str) -> None:
    """Exits with a one-line error if the model cannot be served."""
    try:
        print(f"kernels: {library()}")
    except KernelsUnavailable as reason:
        print(f"kernels: none, torch computes everything: {reason}")
    try:
        directory = resolve_model(model)
        load_essentials(directory)
    except ModelError as error:
        sys.exit(f"cannot serve {model}: {error}")
    print(f"{model}: {directory}")


if __name__ == "__main__":
    main(sys.argv[1])
