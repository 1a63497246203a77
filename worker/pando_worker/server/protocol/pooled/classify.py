"""POST /classify, in vLLM's form."""

from pando_worker.server.protocol.pooled.fields import InputsRequest


class ClassifyRequest(InputsRequest):
    # False: logits in place of the scores that the model's files make of them.
    use_activation: bool | None = None
