"""flashinfer's sum over ranks with a norm, written for the CPU from its documentation, with its
checks. Ranks are threads, and their process group is a `Meeting`."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from tests.worker.cuda.flashinfer.signatures import bound

BYTES = 16  # that a thread reads at a time
MOST_THREADS = 1024  # in each of up to 8 blocks


BUFFERS = ("two-shot", "flags", "one-shot")
"""Each rank allocates these and maps those of the others."""


def prepare(rank: int, step: int) -> None:
    """What a rank does before it exchanges; where a test lets it fail."""


class AllReduceFusionPattern:
    kARResidualRMSNorm = 1  # noqa: N815, the library's name


@dataclass(frozen=True)
class Workspace:
    group: Any
    world_size: int
    rank: int
    numbers: int  # of a call's input, at most
    dtype: torch.dtype


@bound("flashinfer.comm.create_allreduce_fusion_workspace")
def create_allreduce_fusion_workspace(
    backend: str = "auto",
    world_size: int = 0,
    rank: int = 0,
    max_token_num: int = 0,
    hidden_dim: int = 0,
    dtype: torch.dtype = torch.float32,
    gpus_per_node: int | None = None,
    comm_backend: Any = None,
    force_oneshot_support: bool = False,
    group: Any = None,
) -> Workspace:
    assert backend == "trtllm" and world_size in (2, 4, 8, 16) and 0 <= rank < world_size
    assert max_token_num > 0 and dtype in (torch.bfloat16, torch.float16)
    assert (comm_backend.Get_rank(), comm_backend.Get_size()) == (rank, world_size)
    for step, buffer in enumerate(BUFFERS):
        prepare(rank, step)
        names = comm_backend.allgather((buffer, rank))
        assert names == tuple((buffer, each) for each in range(world_size))
        assert comm_backend.bcast((buffer, rank), root=1) == (buffer, 1)
    prepare(rank, len(BUFFERS))
    comm_backend.barrier()
    return Workspace(group, world_size, rank, max_token_num * hidden_dim, dtype)


@bound("flashinfer.comm.allreduce_fusion")
def allreduce_fusion(
    input: Tensor,
    workspace: Workspace,
    pattern: int,
    launch_with_pdl: bool = False,
    trigger_completion_at_end: bool = True,
    output: Tensor | None = None,
    residual_out: Tensor | None = None,
    norm_out: Tensor | None = None,
    quant_out: Tensor | None = None,
    scale_out: Tensor | None = None,
    residual_in: Tensor | None = None,
    rms_gamma: Tensor | None = None,
    rms_eps: float = 1e-6,
    scale_factor: Tensor | float | None = None,
    layout_code: int | None = None,
    use_oneshot: bool | None = None,
    fp32_acc: bool = False,
    moe_reduction_device_num_experts: int | None = None,
    moe_reduction_scale_input: Tensor | None = None,
    moe_reduction_active_experts_token_input: Tensor | None = None,
    moe_reduction_token_input: Tensor | None = None,
    expanded_idx_to_permuted_idx: Tensor | None = None,
    expert_scale_factor: Tensor | None = None,
    shared_expert_output: Tensor | None = None,
    block_quant_group_size: int | None = None,
    weight_bias: float = 0.0,
) -> Tensor:
    check(input, workspace, pattern, residual_in, residual_out, norm_out, rms_gamma)
    assert residual_in is not None and rms_gamma is not None
    assert residual_out is not None and norm_out is not None
    parts = workspace.group.exchange(workspace.rank, input.clone())
    write_sum(parts, residual_in, rms_gamma, rms_eps, weight_bias, residual_out, norm_out)
    return norm_out


def check(
    input: Tensor,
    workspace: Workspace,
    pattern: int,
    residual_in: Tensor | None,
    residual_out: Tensor | None,
    norm_out: Tensor | None,
    rms_gamma: Tensor | None,
) -> None:
    """What the library and its kernel check, and what they leave unchecked."""
    assert pattern == AllReduceFusionPattern.kARResidualRMSNorm
    tokens, hidden = input.shape
    assert tokens > 0 and tokens * hidden <= workspace.numbers
    pieces = hidden * input.itemsize // BYTES
    assert hidden * input.itemsize % BYTES == 0 and pieces <= MOST_THREADS * (
        8 if pieces % 8 == 0 else 1
    )
    given = [residual_in, residual_out, norm_out]
    for x in [input, *given]:
        assert x is not None and x.shape == input.shape and x.is_contiguous()
        assert x.dtype == workspace.dtype
    assert len({x.data_ptr() for x in [input, *given] if x is not None}) == 4
    assert rms_gamma is not None and rms_gamma.shape == (hidden,)
    assert rms_gamma.dtype == workspace.dtype and rms_gamma.is_contiguous()


def write_sum(
    parts: list[Tensor],
    residual: Tensor,
    weight: Tensor,
    eps: float,
    weight_bias: float,
    total: Tensor,
    normed: Tensor,
) -> None:
    """Sums in float32; the norm is that of the rounded total."""
    assert len({part.shape for part in parts}) == 1, "ranks have different steps"
    total.copy_(torch.stack(parts).float().sum(0) + residual.float())
    x = total.float()
    scale = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    normed.copy_(x * scale * (weight.float() + weight_bias))
