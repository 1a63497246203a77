"""Models that classify texts, or score pairs of them: what `config.json` says of their head. Needs
no torch, since the HTTP process asks as well.
"""

from dataclasses import dataclass
from typing import Any, Literal

from pando_worker.messages import Pooling
from pando_worker.models.errors import BrokenCheckpoint, UnsupportedModel

CLASSIFIES = "ForSequenceClassification"
"""The end of the names of such models' classes."""

Activation = Literal["identity", "sigmoid", "softmax"]

_DEFAULT_LABELS = 2  # transformers' where the file has none
_ACTIVATIONS: dict[str, Activation] = {"Identity": "identity", "Sigmoid": "sigmoid"}
_OF_PROBLEMS: dict[str, Activation] = {
    "regression": "identity",
    "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid",
}


@dataclass(frozen=True, slots=True)
class Classifier:
    """
    Attributes:
        labels: their names
        pooling: of hidden states, in front of the head
        activation: from logits to scores
    """

    labels: tuple[str, ...]
    pooling: Pooling
    activation: Activation


def read_classifier(raw: dict[str, Any], architecture: str, *, sees_all: bool) -> Classifier | None:
    """The head of a model that classifies; None for any other.

    Args:
        raw: its `config.json`
        sees_all: whether all tokens see each other, so that the first one stands for the text

    Raises:
        BrokenCheckpoint: a field is malformed.
        UnsupportedModel: scores are made of logits in another way.
    """
    if not architecture.endswith(CLASSIFIES):
        return None
    pooling = Pooling.CLS if sees_all else Pooling.LAST
    if raw.get("classifier_pooling") == "mean":
        pooling = Pooling.MEAN
    labels = _labels(raw)
    return Classifier(labels, pooling, _activation(raw, len(labels)))


def _labels(raw: dict[str, Any]) -> tuple[str, ...]:
    named = raw.get("id2label")
    count = raw.get("num_labels", len(named) if isinstance(named, dict) else _DEFAULT_LABELS)
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise BrokenCheckpoint(f"config.json has num_labels = {count!r}: at least 1 is needed")
    names = named if isinstance(named, dict) else {}
    return tuple(str(names.get(str(index), f"LABEL_{index}")) for index in range(count))


def _activation(raw: dict[str, Any], labels: int) -> Activation:
    """As in vLLM: what sentence-transformers wrote, else what the kind of problem implies."""
    written = raw.get("sentence_transformers")
    named = written.get("activation_fn") if isinstance(written, dict) else None
    named = named or raw.get("sbert_ce_default_activation_function")
    if isinstance(named, str):
        kind = named.rpartition(".")[2]
        if kind not in _ACTIVATIONS:
            raise UnsupportedModel(
                f"config.json has the activation {named}; supported: {', '.join(_ACTIVATIONS)}"
            )
        return _ACTIVATIONS[kind]
    if (problem := raw.get("problem_type")) in _OF_PROBLEMS:
        return _OF_PROBLEMS[problem]
    return "sigmoid" if labels == 1 else "softmax"
