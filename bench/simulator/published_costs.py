"""Cost models of GPUs from published throughput: fits them and writes their files.

Run: python -m bench.simulator.published_costs
The source is NVIDIA's table of TensorRT-LLM's throughput (below), in which a client sends requests
of one length at an unbounded rate. The engine then runs as many at once as its KV pool holds, and
prefills the same share of a prompt for each decode. So a step's tokens and contexts follow from the
table's lengths, and its time from the throughput. Nearly all batches in the table are large, so it
hardly determines the time to read the weights: that comes from the data sheet's bandwidth, of which
90 % is assumed to be reached. With 90 %, the two rows whose arithmetic that reading hides (70B,
128 / 4096) are met within 6 %; with 80 %, they are missed by 9 %.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np

import pando_sim.cost
from pando_sim.cost.files import render
from pando_sim.cost.least_squares import fit
from pando_sim.cost.model import CostModel
from pando_sim.cost.schema import CostFile, Quality, StepCost, WorkerFacts

SOURCE = (
    "NVIDIA TensorRT-LLM, docs/source/performance/perf-overview.md at commit"
    " 00f37686aa854010d68bcbd0f4ab000221541ca6 (release 1.0), throughput of FP8 models; fitted by"
    " bench/simulator/published_costs.py"
)
DATE = "2026-11-22"  # of the fit
LENGTHS = (
    (128, 128),
    (128, 2048),
    (128, 4096),
    (500, 2000),
    (1000, 1000),
    (1000, 2000),
    (2048, 128),
    (2048, 2048),
    (5000, 500),
    (20000, 2000),
)  # prompt and output, tokens
WEIGHTS_BANDWIDTH_SHARE = 0.9
ATTENTION_FLOPS = 600e12  # a second and GPU: FlashAttention 3, forward, causal, heads of 128
MEMORY_SHARE = 0.95  # of the memory, for weights and KV pool; `kv_cache_free_gpu_mem_fraction`
WORKSPACE_BYTES = 4e9  # a GPU
MOST_RUNNING = 2048  # TensorRT-LLM's max_batch_size
ROUNDS = 20
COPY_BYTES_PER_S = 50e9  # PCIe 5.0 x16, of the data sheet's 64e9 one way


@dataclass(frozen=True, slots=True)
class Gpu:
    name: str
    bytes: float
    bytes_per_s: float


@dataclass(frozen=True, slots=True)
class Model:
    """Weights in FP8, embedding and head in 16 bits, keys and values in FP8."""

    name: str
    parameters: float
    embedding_parameters: float  # of one of the two tables
    layers: int
    hidden: int
    kv_heads: int
    head: int

    @property
    def weight_bytes(self) -> float:
        return self.parameters + 2 * self.embedding_parameters

    @property
    def read_bytes(self) -> float:
        """In each step: all but the embedding, of which few rows are looked up."""
        return self.parameters

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * self.layers * self.kv_heads * self.head


@dataclass(frozen=True, slots=True)
class Published:
    gpu: Gpu
    gpus: int
    model: Model
    tokens_per_s: tuple[float, ...]  # output, for each of LENGTHS

    @property
    def capacity_tokens(self) -> int:
        memory = (MEMORY_SHARE * self.gpu.bytes - WORKSPACE_BYTES) * self.gpus
        return int((memory - self.model.weight_bytes) / self.model.kv_bytes_per_token)

    @property
    def weights_s(self) -> float:
        bandwidth = WEIGHTS_BANDWIDTH_SHARE * self.gpu.bytes_per_s * self.gpus
        return self.model.read_bytes / bandwidth

    @property
    def prefill_context_s(self) -> float:
        """For a token and one that it sees: two products of as many numbers as the layers'
        width."""
        flops = 4 * self.model.hidden * self.model.layers
        return flops / (ATTENTION_FLOPS * self.gpus)

    def steady(self, prompt: int, output: int) -> "Steady":
        decodes = min(self.capacity_tokens / (prompt + output), MOST_RUNNING)
        starts = decodes / output  # prompts a step
        return Steady(
            decodes=decodes,
            tokens=decodes + starts * prompt,
            decode_context=decodes * (prompt + output / 2),
            prefill_context=starts * prompt * prompt / 2,
        )


@dataclass(frozen=True, slots=True)
class Steady:
    """The mean step of a saturated engine."""

    decodes: float
    tokens: float
    decode_context: float
    prefill_context: float


H100 = Gpu("H100 SXM 80 GB", 80e9, 3.35e12)
H200 = Gpu("H200 SXM 141 GB", 141e9, 4.8e12)
SMALL = Model("Llama-3.1-8B", 8.03e9, 0.525e9, 32, 4096, 8, 128)
LARGE = Model("Llama-3.3-70B", 70.55e9, 1.05e9, 80, 8192, 8, 128)
# fmt: off
FAMILIES = (
    # Within a family, the host's and the arithmetic's times are fitted together: the same model,
    # and GPUs of the same speed with different memory.
    {
        "h100-llama-3.1-8b-fp8": Published(H100, 1, SMALL, (
            28312, 22714, 14325, 17660, 15220, 13899, 3450, 9305, 3459, 1351)),
        "h200-llama-3.1-8b-fp8": Published(H200, 1, SMALL, (
            27911, 26221, 18027, 20770, 17744, 16828, 3538, 12194, 3902, 1804)),
    },
    {"h100x2-llama-3.3-70b-fp8": Published(H100, 2, LARGE, (
        6378, 6651, 4199, 5222, 4205, 4146, 762, 3082, 898, 437))},
    {"h200-llama-3.3-70b-fp8": Published(H200, 1, LARGE, (
        3803, 4336, 2872, 3666, 2909, 2994, 442, 2003, 566, 283))},
)
# fmt: on


def steps_of(family: dict[str, Published]) -> dict[str, StepCost]:
    """The coefficients of each. Unknowns: host, token, row, and a context for each memory.

    A step whose arithmetic is hidden by reading the weights takes that time instead of its tokens'
    time. Which steps these are follows from the fit, so it is repeated until that settles.
    """
    token_s = math.inf
    for _ in range(ROUNDS):
        host_s, settled_s, row_s, *context_s = _fit(family, token_s)
        if settled_s == token_s:
            break
        token_s = settled_s
    costs = {}
    for (name, published), one_context_s in zip(family.items(), context_s, strict=True):
        costs[name] = StepCost(
            step_s=_rounded(host_s + published.weights_s),
            token_s=_rounded(token_s),
            free_tokens=float(round(published.weights_s / token_s)),
            prefill_context_s=_rounded(published.prefill_context_s),
            decode_row_s=_rounded(row_s),
            decode_context_s=_rounded(one_context_s),
        )
    return costs


def _fit(family: dict[str, Published], token_s: float) -> list[float]:
    features, known_s, observed_s = [], [], []
    for number, published in enumerate(family.values()):
        for lengths, rate in zip(LENGTHS, published.tokens_per_s, strict=True):
            steady = published.steady(*lengths)
            hidden = token_s * steady.tokens < published.weights_s
            contexts = [0.0] * len(family)
            contexts[number] = steady.decode_context
            features.append([1.0, 0.0 if hidden else steady.tokens, steady.decodes, *contexts])
            known_s.append(
                published.prefill_context_s * steady.prefill_context
                + (published.weights_s if hidden else 0.0)
            )
            observed_s.append(steady.decodes / rate)
    solution = fit(np.array(features), np.array(observed_s), known=np.array(known_s))
    return [float(value) for value in solution]


def _rounded(seconds: float) -> float:
    return float(f"{seconds:.4g}")


def tokens_per_s(model: CostModel, published: Published, prompt: int, output: int) -> float:
    """Output of a saturated engine, as the model predicts it."""
    steady = published.steady(prompt, output)
    cost = model.file.step
    seconds = (
        cost.step_s
        + cost.token_s * max(0.0, steady.tokens - cost.free_tokens)
        + cost.prefill_context_s * steady.prefill_context
        + cost.decode_row_s * steady.decodes
        + cost.decode_context_s * steady.decode_context
    )
    return steady.decodes / seconds


def errors(model: CostModel, published: Published) -> list[float]:
    """The errors of the rates, for each of LENGTHS."""
    return [
        tokens_per_s(model, published, *lengths) / rate - 1
        for lengths, rate in zip(LENGTHS, published.tokens_per_s, strict=True)
    ]


def cost_file(name: str, published: Published, step: StepCost) -> CostFile:
    gpu, model = published.gpu, published.model
    flops = 2 * model.parameters / step.token_s / published.gpus
    cache = model.kv_bytes_per_token / step.decode_context_s / published.gpus
    file = CostFile(
        name=name,
        model=f"{model.name}, FP8 weights and KV cache",
        machine=f"{published.gpus} x {gpu.name}",
        source=SOURCE,
        date=DATE,
        arithmetic=(
            f"KV: 2 · {model.layers} layers · {model.kv_heads} heads · {model.head} · 1 byte ="
            f" {model.kv_bytes_per_token} bytes a token; capacity: ({MEMORY_SHARE} ·"
            f" {gpu.bytes:.3g} - {WORKSPACE_BYTES:.0g}) · {published.gpus}"
            f" - {model.weight_bytes:.4g} bytes of weights, over that",
            f"weights: {model.read_bytes:.4g} bytes / ({WEIGHTS_BANDWIDTH_SHARE} ·"
            f" {gpu.bytes_per_s:.3g} bytes/s · {published.gpus}), an assumption; the rest of step_s"
            " is fitted",
            "free_tokens: the time for reading the weights / token_s",
            f"token_s: fitted; {flops:.3g} operations a second and GPU for"
            f" 2 · {model.parameters:.4g} a token",
            f"decode_context_s: fitted; {cache:.3g} bytes a second and GPU",
            f"prefill_context_s: 4 · {model.hidden} · {model.layers} operations /"
            f" ({ATTENTION_FLOPS:.0g} · {published.gpus}), FlashAttention 3's published rate"
            " (arXiv:2407.08608)",
            "copy_bytes_per_s: PCIe 5.0 x16, an assumption",
        ),
        step=step,
        worker=WorkerFacts(capacity_tokens=published.capacity_tokens, context_length=131072),
        kv_bytes_per_token=model.kv_bytes_per_token,
        copy_bytes_per_s=COPY_BYTES_PER_S * published.gpus,
    )
    off = [abs(error) for error in errors(CostModel(file), published)]
    quality = Quality(
        observations=len(off),
        median_error=round(float(np.median(off)), 4),
        largest_error=round(max(off), 4),
    )
    return CostFile(**{f: getattr(file, f) for f in file.__struct_fields__} | {"quality": quality})


def cost_files() -> dict[str, CostFile]:
    return {
        name: cost_file(name, published, step)
        for family in FAMILIES
        for (name, published), step in zip(family.items(), steps_of(family).values(), strict=True)
    }


@click.command()
def main() -> None:
    """Writes the included files."""
    folder = Path(pando_sim.cost.__file__).parent / "models"
    published = {name: one for family in FAMILIES for name, one in family.items()}
    for name, file in cost_files().items():
        (folder / f"{name}.json").write_bytes(render(file))
        off = errors(CostModel(file), published[name])
        click.echo(f"{name}: {file.step}")
        for (prompt, output), error in zip(LENGTHS, off, strict=True):
            click.echo(f"  {prompt:6d} / {output:5d}  {error:+7.1%}")


if __name__ == "__main__":
    main()
