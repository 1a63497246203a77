"""Every setting of a worker, in one place: flags, `PANDO_WORKER_…` variables and the YAML file."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from pando_fleet.traces import traceable


class DType(StrEnum):
    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class KVCacheDType(StrEnum):
    AUTO = "auto"
    BFLOAT16 = "bfloat16"
    FP8_E4M3 = "fp8_e4m3"


class WorkerSettings(BaseSettings):
    """A worker: one model, its HTTP server and its scheduler process."""

    model_config = SettingsConfigDict(env_prefix="PANDO_WORKER_", extra="forbid", frozen=True)

    model: Annotated[str, Field(description="model directory or hub id, Hugging Face format")]
    model_impl: Annotated[
        Literal["auto", "pando", "transformers"],
        Field(
            description="whose code runs the model: pando has some families, transformers most"
            " decoders; auto takes transformers for what pando lacks"
        ),
    ] = "auto"
    load_format: Annotated[
        Literal["safetensors", "dummy"],
        Field(
            description="dummy: random weights for measurements, of which config.json alone is read"
        ),
    ] = "safetensors"
    served_model_name: Annotated[
        str | None, Field(description="name in the API; the model's last path part by default")
    ] = None
    host: Annotated[str, Field(description="address to listen on")] = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535, description="port, 0 picks a free one")] = 30000
    redis: Annotated[
        str, Field(description="Redis URL of the fleet's state, or 'none' to serve alone")
    ] = "none"
    pool: Annotated[
        str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", description="pool to join")
    ] = "default"
    replica: Annotated[
        str | None, Field(description="name in the fleet; host name and port by default")
    ] = None
    url: Annotated[
        str | None,
        Field(description="where routers reach it; http://host:port by default"),
    ] = None

    device: Annotated[
        Literal["cpu", "cuda"],
        Field(description="where the model runs; on cuda, each rank has a GPU of its own"),
    ] = "cpu"
    dtype: Annotated[
        DType,
        Field(description="of weights and activations; auto is float32 on CPU, bfloat16 on CUDA"),
    ] = DType.AUTO
    kv_cache_dtype: Annotated[
        KVCacheDType,
        Field(description="of cached keys and values; auto is that of the weights"),
    ] = KVCacheDType.AUTO
    threads: Annotated[
        int | None,
        Field(ge=1, description="CPU threads of the model; by default the cores it may use"),
    ] = None

    tensor_parallel_size: Annotated[
        int, Field(ge=1, description="processes that share each layer of the model")
    ] = 1

    cpu_kernels: Annotated[
        Literal["auto", "on", "off"],
        Field(
            description="C++ kernels for float32 on CPU, compiled at the first start (or with the"
            " image): auto uses them where they are measured to be faster; on insists on them"
        ),
    ] = "auto"

    attention_backend: Annotated[
        Literal["auto", "torch", "flashinfer"],
        Field(
            description="what computes attention, norms and the like on CUDA: auto is flashinfer"
            " where it is installed and can, else torch; flashinfer insists; torch is the one on"
            " CPU, and CUDA graphs are not for it"
        ),
    ] = "auto"
    cuda_graph_max_batch: Annotated[
        int,
        Field(
            ge=0,
            description="largest batch of decodes that runs as a CUDA graph, 0 for none; graphs are"
            " captured at the start for some batch sizes up to it",
        ),
    ] = 256

    memory_gib: Annotated[
        float | None,
        Field(
            gt=0,
            description="memory for weights and KV pool of all ranks together, in GiB; by default 2"
            " on CPU, and what is free on the GPUs on CUDA, which have to have as much",
        ),
    ] = None
    mem_fraction_static: Annotated[
        float,
        Field(gt=0, lt=1, description="share of the memory left after the weights for the KV pool"),
    ] = 0.8
    max_total_tokens: Annotated[
        int | None, Field(ge=1, description="cap on the KV pool, in tokens")
    ] = None
    window_ratio: Annotated[
        float,
        Field(
            gt=0,
            le=1,
            description="tokens that layers with a sliding window hold, as a share of the KV pool's"
            " and of the host's (more if one request needs them); 1 keeps all layers in one pool",
        ),
    ] = 0.5
    max_running_requests: Annotated[
        int, Field(ge=1, description="cap on requests that run at once")
    ] = 256
    context_length: Annotated[
        int | None, Field(ge=1, description="tokens a request may have; the model's by default")
    ] = None
    page_size: Annotated[int, Field(ge=1, le=256, description="tokens in a KV page")] = 16

    chunked_prefill_size: Annotated[
        int, Field(ge=1, description="token budget of a step; longer prompts run in chunks")
    ] = 4096
    overlap_schedule: Annotated[
        bool, Field(description="plan a step while the one before it still runs")
    ] = True
    batching: Annotated[
        Literal["decode-first", "prefill-first"],
        Field(
            description="decode-first: a step runs every stream and fills its budget with prompts;"
            " prefill-first: prompts get whole steps, streams wait for them"
        ),
    ] = "decode-first"
    schedule_policy: Annotated[
        Literal["lpm", "dfs-weight", "fcfs", "random", "priority"],
        Field(
            description="order of waiting requests: longest cached prefix; the most wanted branch"
            " of the prefix tree; arrival; random; the request's priority, highest first"
        ),
    ] = "lpm"
    max_passed_over: Annotated[
        int, Field(ge=0, description="later requests that may start before a waiting one")
    ] = 256
    new_token_ratio: Annotated[
        float,
        Field(
            gt=0,
            le=1,
            description="share of its max_tokens reserved for each running request at first; it"
            " falls while that is enough, and rises with each retraction",
        ),
    ] = 0.7
    watermark: Annotated[
        float, Field(ge=0, lt=1, description="share of the KV pool that admission leaves free")
    ] = 0.01
    max_queued_requests: Annotated[
        int, Field(ge=1, description="waiting requests before new ones get 503")
    ] = 1024
    radix_cache: Annotated[bool, Field(description="keep and match prefixes")] = True
    eviction_policy: Annotated[
        Literal["lru", "lfu", "fifo"],
        Field(
            description="which cached prefix goes first: the least recently used, the one with the"
            " fewest hits, or the oldest"
        ),
    ] = "lru"
    host_memory_gib: Annotated[
        float,
        Field(ge=0, description="host memory for cached prefixes that the KV pool evicts, in GiB"),
    ] = 0.0
    host_write: Annotated[
        Literal["write-back", "write-through-selective"],
        Field(
            description="when a prefix is copied to host memory: as it is evicted, or once it was"
            " hit twice"
        ),
    ] = "write-back"

    log_every_steps: Annotated[
        int, Field(ge=0, description="steps between two lines of the log on the load; 0 for none")
    ] = 200
    profile: Annotated[
        Path | None, Field(description="directory for a trace of the first busy steps")
    ] = None

    tool_call_parser: Annotated[
        Literal["auto", "none", "hermes", "llama3", "mistral", "qwen3_coder"],
        Field(description="how the model writes tool calls; auto: by its chat template"),
    ] = "auto"
    reasoning_parser: Annotated[
        Literal["auto", "none", "qwen3", "deepseek_r1"],
        Field(description="how the model marks its reasoning; auto: by its chat template"),
    ] = "auto"
    pooling: Annotated[
        Literal["auto", "last", "mean"],
        Field(
            description="which hidden states make an embedding: the last token's, or the mean of"
            " all; auto: as the model's 1_Pooling says, else the last"
        ),
    ] = "auto"
    max_body_bytes: Annotated[
        int, Field(ge=1, description="longest request body; longer ones get 413")
    ] = 64 * 1024 * 1024
    max_connections: Annotated[
        int,
        Field(
            ge=64,
            description="of clients, open at once, or fewer where the system allows fewer files;"
            " above it the one that has waited longest for a request is closed",
        ),
    ] = 16_384
    write_timeout: Annotated[
        float,
        Field(
            gt=0,
            description="for a client that reads nothing of its answer, in seconds; longer than"
            " the router's, which judges its own clients",
        ),
    ] = 120.0
    max_unread_bytes: Annotated[
        int,
        Field(ge=1, description="kept of one request's output for a client that is behind"),
    ] = 4 * 1024 * 1024
    drain_seconds: Annotated[
        float, Field(ge=0, description="time for running requests after SIGTERM, in seconds")
    ] = 30.0
    hand_off_seconds: Annotated[
        float,
        Field(
            ge=0,
            description="time after SIGTERM in which routers may have what only this worker has"
            " cached computed elsewhere, where the operator asks for it, in seconds",
        ),
    ] = 0.0
    request_timeout_seconds: Annotated[
        float | None,
        Field(gt=0, description="longest time of a request, then it gets 504"),
    ] = None
    watchdog_seconds: Annotated[
        float,
        Field(
            ge=1,
            description="silence of the engine, beyond what its steps are expected to take, after"
            " which the worker ends, in seconds",
        ),
    ] = 60.0
    compat_metrics: Annotated[
        bool, Field(description="export vLLM's names of the main gauges as well")
    ] = False
    otlp_endpoint: Annotated[
        str | None,
        Field(
            pattern=r"^https?://\S+$",
            description="OpenTelemetry collector for traces, such as http://collector:4318 (OTLP"
            " over HTTP; needs the extra otel); none: no traces",
        ),
        AfterValidator(traceable),
    ] = None
    trace_sample: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="share of traces kept of those that begin here; a router's"
            " traceparent decides of its own",
        ),
    ] = 1.0

    @model_validator(mode="after")
    def _flashinfer_has_a_gpu(self) -> "WorkerSettings":
        if self.attention_backend == "flashinfer" and self.device != "cuda":
            raise ValueError(f"attention_backend 'flashinfer' is for cuda, not for {self.device!r}")
        return self

    @model_validator(mode="after")
    def _prefill_holds_a_page(self) -> "WorkerSettings":
        if self.chunked_prefill_size < self.page_size:
            raise ValueError(
                f"chunked_prefill_size ({self.chunked_prefill_size}) is below page_size"
                f" ({self.page_size})"
            )
        return self

    @model_validator(mode="after")
    def _host_memory_holds_prefixes(self) -> "WorkerSettings":
        if self.host_memory_gib and not self.radix_cache:
            raise ValueError("host_memory_gib keeps cached prefixes, and radix_cache is off")
        return self
