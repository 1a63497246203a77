"""Keeps the fp8 and mxfp4 matrices of a checkpoint as they are, where the device multiplies with
them.

That happens before the model has memory, so its size is known before anything is read.
"""

from collections.abc import Mapping

from pando_worker.models.fp8 import BLOCK, Fp8Products, Scaling
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.models.layers.experts.mixture import MixtureOfExperts
from pando_worker.models.layers.linear import ColumnParallelLinear, RowParallelLinear
from pando_worker.models.layers.weight import Fp8Weight
from pando_worker.models.loading.checkpoint_tensor import Stored
from pando_worker.models.loading.fills import fills_of
from pando_worker.models.loading.quantization import ScaledTensor
from pando_worker.models.mixture import FusedExperts
from pando_worker.models.mxfp4 import RUN

_ALIGNED = 16  # what products by rows need of both sizes


def keep_fp8(model: CausalLM, tensors: Mapping[str, Stored], products: Fp8Products) -> None:
    """
    Args:
        tensors: of the checkpoint, as if never quantized
    """
    for name, module in model.named_modules():
        if isinstance(module, (ColumnParallelLinear, RowParallelLinear)):
            scaling = _scaling(name, module, tensors)
            product = None if scaling is None else products.of(scaling)
            if scaling is not None and product is not None:
                plain = module.weight
                module.weight = Fp8Weight(product, scaling, plain.outputs, plain.inputs)
        elif isinstance(module, MixtureOfExperts) and products.experts is not None:
            scaling = _scaling(name, module, tensors)
            if scaling is not None:
                module.keep_fp8(scaling, products.experts)


def keep_mxfp4(model: CausalLM, experts: FusedExperts) -> None:
    """Experts of GPT-OSS, unless a rank's share of their inputs ends within a run of numbers."""
    for module in model.modules():
        if isinstance(module, MixtureOfExperts):
            taken = module.rows.taken
            if taken.start % RUN == 0 and taken.stop % RUN == 0:
                module.keep_mxfp4(experts)


def _scaling(
    name: str,
    module: ColumnParallelLinear | RowParallelLinear | MixtureOfExperts,
    tensors: Mapping[str, Stored],
) -> Scaling | None:
    """That all of a layer's matrices have; None if they differ, are not in fp8, or are cut where no
    product allows it. Routers are never in fp8."""
    found = set[Scaling | None]()
    aligned = True
    for fill in fills_of(name, module):
        of_router = isinstance(module, MixtureOfExperts) and fill.memory is module.router
        if len(fill.part) == 1 or of_router:
            continue  # a bias
        tensor = tensors.get(fill.name)
        found.add(tensor.scaling if isinstance(tensor, ScaledTensor) else None)
        edges = (edge for part in fill.part for edge in (part.start, part.stop))
        aligned = aligned and all(edge % BLOCK == 0 for edge in edges)
    if len(found) != 1:
        return None
    [scaling] = found
    if scaling == "blocks" and not aligned:
        return None
    return None if any(size % _ALIGNED for size in _sizes(module)) else scaling


def _sizes(module: ColumnParallelLinear | RowParallelLinear | MixtureOfExperts) -> tuple[int, ...]:
    if isinstance(module, MixtureOfExperts):
        return tuple(module.down.shape[1:])
    return module.weight.outputs, module.weight.inputs
