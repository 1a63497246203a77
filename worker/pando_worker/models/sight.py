"""Whether a model with a vision part sees on a worker, or reads text only."""

from pando_worker.models.config import ModelConfig

_PROCESSORS = ("processor_config.json", "preprocessor_config.json")


def blindness(config: ModelConfig) -> str | None:
    """Why such a model reads text only; None if it sees, or has no vision part."""
    if config.image_token is None:
        return None
    model_dir = config.path.parent
    if not any((model_dir / name).is_file() for name in _PROCESSORS):
        return f"{model_dir} has no {' or '.join(_PROCESSORS)}"
    return None
