"""`TorchStep`: turns a step's logits into its result."""

from collections.abc import Sequence

import torch
from torch import Tensor

from pando_worker.batch import ForwardBatch, Int32, StepResult
from pando_worker.models.parallel import ParallelGroup
from pando_worker.runner.sampling.choices import ArrivingChoices
from pando_worker.runner.sampling.edits import add_bias, apply_mask, penalize, prefer_timestamps
from pando_worker.runner.sampling.future_tokens import FutureTokens
from pando_worker.runner.sampling.histories import Histories
from pando_worker.runner.sampling.logprobs import ArrivingLogprobs, DeviceLogprobs, token_logprobs
from pando_worker.runner.sampling.ops import BY_TORCH, SamplingOps
from pando_worker.runner.sampling.sampler import sample
from pando_worker.tensors.transfer import HostCopy, to_device


class TorchStep:
    """A batch whose model has been started. On a GPU only `result` waits."""

    def __init__(
        self,
        batch: ForwardBatch,
        logits: Tensor,
        scores: DeviceLogprobs | None,
        probed: Tensor | None,
        pooled: Tensor | None,
        aligned: Sequence[Tensor],
        choices: ArrivingChoices | None,
        futures: FutureTokens,
        histories: Histories,
        group: ParallelGroup,
        ops: SamplingOps = BY_TORCH,
        failed_images: frozenset[bytes] = frozenset(),
    ) -> None:
        """
        Args:
            logits: float32 [num_samples, vocab_size], which the step may change; on other ranks
                than the first [num_samples, 0]
            scores: of the batch's `PromptScores`
            probed: float32 [num_probed], of the batch's `ProbedTokens`
            pooled: float32 [num_pooled, hidden_size], of the batch's `PooledRows`
            aligned: of the batch's `AlignedRows`
            choices: of the batch's `ChosenTokens`
            futures: stores the tokens for later steps
            histories: earlier tokens of rows with penalties
            group: its first rank, which has the logits, samples for all ranks
            ops: the device's own passes over logits
            failed_images: as of `StepResult`
        """
        self._batch = batch
        self._logits = logits
        self._futures = futures
        self._histories = histories
        self._group = group
        self._ops = ops
        self._failed_images = failed_images
        self._scores = None if scores is None else ArrivingLogprobs(scores)
        self._probed = None if probed is None else HostCopy(probed)
        self._aligned = [HostCopy(weights) for weights in aligned]
        self._choices = choices
        self._pooled = None if pooled is None else HostCopy(pooled)
        self._logprobs: ArrivingLogprobs | None = None
        self._tokens: HostCopy | None = None

    @torch.inference_mode()
    def sample(self, mask: Int32 | None) -> None:
        rows = self._batch.req_rows[self._batch.sample_rows]
        if self._group.rank > 0:
            tokens = torch.empty(len(rows), dtype=torch.int64, device=self._logits.device)
            self._futures.put(rows, self._group.broadcast(tokens))
            return
        sampling, logits = self._batch.sampling, self._logits
        edited = mask is not None or sampling.bias is not None or sampling.penalties is not None
        wants_logprobs = sampling.top_logprobs >= 0
        speech = sampling.speech
        # Log-probabilities of rows with rules are those after the edits, so these need no copy.
        all_ruled = speech is not None and len(speech.samples) == len(logits)
        raw = logits.clone() if edited and wants_logprobs and not all_ruled else logits
        if sampling.bias is not None:
            add_bias(logits, sampling.bias)
        if sampling.penalties is not None:
            added = self._futures.resolve(sampling.penalties.tokens)
            history = self._histories.add(sampling.penalties, added, logits.shape[1])
            penalize(logits, sampling.penalties, history)
        if mask is not None:
            (self._ops.forbid or apply_mask)(logits, mask)
        if speech is not None:
            prefer_timestamps(logits, speech)
            if raw is not logits:
                ruled = to_device(speech.samples, logits.device)
                raw.index_copy_(0, ruled, logits.index_select(0, ruled))
        tokens = self._group.broadcast(sample(logits, sampling, self._ops))
        self._futures.put(rows, tokens)
        self._tokens = HostCopy(tokens)
        if wants_logprobs:
            found = token_logprobs(raw, tokens, sampling.top_logprobs, self._ops)
            self._logprobs = ArrivingLogprobs(found)

    def result(self) -> StepResult:
        assert self._tokens is not None, "sample comes first"
        result = StepResult(tokens=self._tokens.wait(), failed_images=self._failed_images)
        if self._logprobs is not None:
            result.logprobs = self._logprobs.wait()
        if self._scores is not None:
            result.scores = self._scores.wait()
        if self._probed is not None:
            result.probed = self._probed.wait()
        result.aligned = [weights.wait() for weights in self._aligned]
        if self._choices is not None:
            result.choices = self._choices.wait()
        if self._pooled is not None:
            result.pooled = self._pooled.wait()
        return result
