"""Captures a model's CUDA graphs at the start."""

import logging
import time

import torch

from pando_worker.attention.backend import AttentionBackend
from pando_worker.attention.device_pages import Padding
from pando_worker.attention.flashinfer.backend import FlashinferAttention
from pando_worker.attention.flashinfer.graphs import FlashinferGraphs
from pando_worker.attention.flashinfer.pieces import AttentionPieces
from pando_worker.models.layers.causal_lm import CausalLM
from pando_worker.progress import Report
from pando_worker.runner.cuda.capture import CudaCapture
from pando_worker.runner.cuda.cuda_graph import CudaGraphRunner, graph_sizes
from pando_worker.runner.cuda.cuda_path import most_tokens
from pando_worker.runner.cuda.graph_inputs import GraphInputs
from pando_worker.runner.cuda.piecewise_graph import PiecewiseGraphs, piece_sizes
from pando_worker.runner.loading import LoadedModel
from pando_worker.runner.sampling.future_tokens import FutureTokens
from pando_worker.settings import WorkerSettings

log = logging.getLogger("pando.worker.cuda")


def capture_graphs(
    settings: WorkerSettings,
    loaded: LoadedModel,
    attention: AttentionBackend,
    futures: FutureTokens,
    report: Report,
) -> tuple[CudaGraphRunner | None, PiecewiseGraphs | None]:
    """Graphs of decode steps, and of other small steps but for attention; None where the settings
    or the model do not allow them."""
    rows = graph_sizes(min(settings.cuda_graph_max_batch, settings.max_running_requests))
    tokens = piece_sizes(min(settings.cuda_graph_max_tokens, most_tokens(settings, loaded)))
    if not rows and not tokens:
        return None, None
    if not isinstance(attention, FlashinferAttention):
        log.info("no CUDA graphs: torch's attention runs different kernels for each batch")
        return None, None
    if not isinstance(model := loaded.model, CausalLM):
        log.warning(
            "no CUDA graphs: a model that runs through transformers may wait for the device in its"
            " layers"
        )
        return None, None
    started, free = time.monotonic(), torch.cuda.mem_get_info(loaded.device)[0]
    padding = _padding(attention, loaded, settings.page_size)
    inputs = GraphInputs(max([*rows, *tokens]), loaded.device, loaded.lora)
    capture, share = CudaCapture(), len(tokens) / (len(tokens) + len(rows))
    pieces = decodes = None
    if tokens:  # first, as the larger ones, whose memory all others take again
        slots = {released: page * settings.page_size for released, page in padding.pages.items()}
        hidden = torch.zeros(
            tokens[-1], model.hidden_size, dtype=loaded.dtype, device=loaded.device
        )
        pieces = PiecewiseGraphs(
            model,
            AttentionPieces(attention, tokens[-1], slots),
            futures,
            inputs,
            hidden,
            sizes=tokens,
            capture=capture,
            report=lambda stage, done: report(stage, share * done),
        )
    if rows:
        decodes = CudaGraphRunner(
            model,
            FlashinferGraphs(attention, rows[-1], loaded.context_length, padding),
            futures,
            inputs,
            sizes=rows,
            capture=capture,
            report=lambda stage, done: report(stage, share + (1 - share) * done),
        )
    taken = free - torch.cuda.mem_get_info(loaded.device)[0]
    log.info(
        "captured CUDA graphs in %.1f s: %d numbers of tokens, %d of decodes; they take %.0f MiB",
        time.monotonic() - started,
        len(tokens),
        len(rows),
        taken / 2**20,
    )
    return decodes, pieces


def _padding(attention: FlashinferAttention, loaded: LoadedModel, page_size: int) -> Padding:
    """A page behind those of the pool, and of the window layers' own."""
    pool, tables = loaded.kv_pool, attention.tables
    page = loaded.capacity_tokens // page_size
    window_page = pool.window_slots // page_size if pool.windowed else None
    if tables is None:
        return Padding(page, window_page)
    tables.pad(page, window_page)
    return Padding(page, window_page, tables.padding_row)
