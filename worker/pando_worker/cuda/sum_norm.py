"""`FlashinferSumNorm`: the sum over GPUs, what is added to it and the norm of that in one kernel.

Each GPU writes its part into memory of the others, and reads theirs, so a step of few tokens does
not wait for NCCL's kernel and two more passes. Large steps are faster with NCCL, which sends less.
"""

import logging
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from pando_worker.cuda.rank_exchange import RankExchange
from pando_worker.models.parallel import ParallelGroup

log = logging.getLogger("pando.worker.cuda")

# Bytes of hidden states up to which the kernel runs, by major compute capability and number of
# ranks. Those of vLLM (`FI_ALLREDUCE_FUSION_MAX_SIZE_MB`), who measured them, but at most 8 MiB, as
# the ranks' workspaces take four times as much for each rank. Not measured here.
MOST_BYTES = {
    9: {2: 8 * 2**20, 4: 2 * 2**20, 8: 2**20},
    10: {2: 8 * 2**20, 4: 8 * 2**20, 8: 2**20},
}
# A token's numbers are shared out evenly among up to 8 blocks, in pieces of 16 bytes.
HIDDEN_MULTIPLE = 64


class FlashinferSumNorm:
    """A `SumNorm`.

    Args:
        library: flashinfer.comm
        exchange: of the same group
        tokens: of a step, at most
        dtype: bfloat16 or float16
    """

    def __init__(
        self,
        library: Any,
        group: ParallelGroup,
        exchange: RankExchange,
        tokens: int,
        hidden_size: int,
        dtype: torch.dtype,
    ) -> None:
        """Call on all ranks.

        Raises:
            RuntimeError: a GPU cannot reach the memory of another, a kernel was not compiled, or
                another rank gave up.
        """
        self._tokens = tokens
        self._workspace = library.create_allreduce_fusion_workspace(
            backend="trtllm",
            world_size=group.size,
            rank=group.rank,
            max_token_num=tokens,
            hidden_dim=hidden_size,
            dtype=dtype,
            comm_backend=exchange,
            group=group.process_group,
        )
        self._fused = library.allreduce_fusion
        self._pattern = library.AllReduceFusionPattern.kARResidualRMSNorm

    def takes(self, x: Tensor) -> bool:
        return len(x) <= self._tokens

    def run(
        self, x: Tensor, part: Tensor, weight: Tensor, eps: float, offset: bool
    ) -> tuple[Tensor, Tensor]:
        total, normed = torch.empty_like(x), torch.empty_like(x)
        self._fused(
            input=part.contiguous(),
            workspace=self._workspace,
            pattern=self._pattern,
            residual_in=x.contiguous(),
            residual_out=total,
            norm_out=normed,
            rms_gamma=weight,
            rms_eps=eps,
            fp32_acc=True,
            weight_bias=1.0 if offset else 0.0,
        )
        return total, normed


def choose_sum_norm(
    group: ParallelGroup,
    capability: tuple[int, int],
    hidden_size: int,
    dtype: torch.dtype,
    most_tokens: int,
) -> FlashinferSumNorm | None:
    """The kernel for these GPUs; None if NCCL sums. Call on all ranks; the log says which it is.

    Args:
        capability: the GPUs', major and minor
        most_tokens: of a step
    """
    most_bytes = MOST_BYTES.get(capability[0], {}).get(group.size, 0)
    tokens = min(most_tokens, most_bytes // (hidden_size * dtype.itemsize))
    if not tokens or hidden_size % HIDDEN_MULTIPLE:
        log.info(
            "sums over ranks: NCCL, as there is no kernel with the norm for %d GPUs of compute"
            " capability %d.%d and a hidden size of %d",
            group.size,
            *capability,
            hidden_size,
        )
        return None
    exchange = RankExchange(group)
    try:
        library = import_module("flashinfer.comm")
        made = FlashinferSumNorm(library, group, exchange, tokens, hidden_size, dtype)
        exchange.barrier()  # all ranks have it
    except (ImportError, OSError, RuntimeError) as error:
        exchange.give_up()
        log.warning("sums over ranks: NCCL, as flashinfer's kernel cannot be used: %s", error)
        return None
    log.info("sums over ranks: flashinfer's, with the norm, up to %d tokens; else NCCL", tokens)
    return made
