"""RoBERTa (arXiv:1907.11692), XLM-RoBERTa (arXiv:1911.02116) and CamemBERT: BERT with its positions
counted from behind padding's, and another head."""

from typing import Annotated

from msgspec import Meta

from pando_worker.models.build import Build
from pando_worker.models.families import bert
from pando_worker.models.kinds.text_encoder import PADDING
from pando_worker.models.layers.text_encoder import DenseHead, TextEncoder


class Config(bert.Config, frozen=True, kw_only=True):
    pad_token_id: Annotated[int, Meta(ge=0)] = PADDING


def build(config: Config, build: Build) -> TextEncoder:
    head = None
    if build.labels:
        head = DenseHead(build, config.hidden_size, "classifier.dense", "classifier.out_proj")
    return TextEncoder(
        bert.BertBody(build, config, first_position=config.pad_token_id + 1),
        head,
        base="roberta.",
        unused=("lm_head.", "pooler.", "embeddings.position_ids"),
        heads=config.num_attention_heads,
    )
