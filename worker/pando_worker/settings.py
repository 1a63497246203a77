"""Every setting of a worker, in one place: flags, `PANDO_WORKER_…` variables and the YAML file."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from pando_fleet.choices import described, one_of
from pando_fleet.http.server.settings import (
    BodyTimeout,
    HeaderTimeout,
    KeepAliveTimeout,
    MaxBodiesBytes,
    MaxBodyValues,
    MaxHeaderBytes,
    MinBodyRate,
)
from pando_fleet.redis.url import readable
from pando_fleet.traces import OtlpEndpoint
from pando_worker.adapters.info import RANK_PAGE
from pando_worker.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from pando_worker.policies.eviction import EVICTION_POLICIES
from pando_worker.policies.schedule import SCHEDULE_POLICIES


class DType(StrEnum):
    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class KVCacheDType(StrEnum):
    AUTO = "auto"
    BFLOAT16 = "bfloat16"
    FP8_E4M3 = "fp8_e4m3"


LORA_SLOTS = 8
"""The slots of a worker that has adapters from the start, unless `max_loras` says otherwise."""


def _words(value: Any) -> Any:
    """ "a,b" as a list; other types are validated as they are."""
    return [word.strip() for word in value.split(",") if word.strip()] if _is_text(value) else value


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _name_of(model: str) -> str:
    path = Path(model)
    if path.name in ("", ".."):
        path = path.resolve()
    if path.parent.name == "snapshots":  # a repository in the hub's cache, by its revision
        path = path.parent.parent
    return path.name.rpartition("--")[2] if path.name.startswith("models--") else path.name


def _are_modules(words: tuple[str, ...]) -> tuple[str, ...]:
    names: set[str] = set()
    for word in words:
        name, equals, path = word.partition("=")
        if not (name and equals and path):
            raise ValueError(f"{word!r} is not name=path; separate several with commas")
        if name in names:
            raise ValueError(f"{name!r} has two paths")
        names.add(name)
    return words


Words = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_words)]


class WorkerSettings(BaseSettings):
    """A worker: one model, its HTTP server and its scheduler process."""

    model_config = SettingsConfigDict(env_prefix="PANDO_WORKER_", extra="forbid", frozen=True)

    model: Annotated[
        str,
        Field(
            description="model directory or hub id in Hugging Face format; a GGUF file: a path, a"
            " folder with one, org/name:FILE.gguf of the hub; or, from Python packages, smollm2 or"
            " all-minilm-l6-v2"
        ),
    ]
    default_temperature: Annotated[
        float | None,
        Field(ge=0, description="of requests that name none, instead of the model's own default"),
    ] = None
    default_top_p: Annotated[
        float | None, Field(gt=0, le=1, description="as default_temperature")
    ] = None
    default_top_k: Annotated[
        int | None, Field(ge=0, description="as default_temperature; 0 keeps every token")
    ] = None
    default_min_p: Annotated[
        float | None, Field(ge=0, le=1, description="as default_temperature")
    ] = None
    default_repetition_penalty: Annotated[
        float | None, Field(ge=0.01, le=100, description="as default_temperature")
    ] = None
    model_impl: Annotated[
        Literal["auto", "pando", "transformers"],
        Field(
            description="which code runs the model: pando has some families, transformers most"
            " decoders; auto takes transformers for models that pando lacks"
        ),
    ] = "auto"
    load_format: Annotated[
        Literal["auto", "dummy"],
        Field(description="dummy: random weights for measurements; only config.json is read"),
    ] = "auto"
    served_model_name: Annotated[
        str | None,
        Field(description="name in the API; by default the last part of the model's path"),
    ] = None
    host: Annotated[str, Field(description="address to listen on")] = "127.0.0.1"
    port: Annotated[
        int, Field(ge=0, le=65535, description="port to listen on; 0 picks a free one")
    ] = 30000
    redis: Annotated[
        str,
        Field(description="Redis URL of the fleet's state, or 'none' to serve alone"),
        AfterValidator(lambda url: url if url == "none" else readable(url)),
    ] = "none"
    pool: Annotated[
        str,
        Field(
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$",
            description="pool to join; on Kubernetes with its namespace, NAMESPACE/NAME, if that is"
            " not the operator's",
        ),
    ] = "default"
    replica: Annotated[
        str | None, Field(description="name in the fleet; by default host name and port")
    ] = None
    url: Annotated[
        str | None,
        Field(description="URL for routers; by default http://host:port"),
    ] = None

    admin_token: Annotated[
        SecretStr | None,
        Field(
            min_length=1,
            description="API key that /flush_cache, /abort_request and the endpoints which load and"
            " unload adapters require; by default a random one, which heartbeats carry to routers"
            " and the operator, or none if host is an address of this machine only",
        ),
    ] = None

    device: Annotated[
        Literal["cpu", "cuda"],
        Field(description="where the model runs; on cuda, each rank has its own GPU"),
    ] = "cpu"
    dtype: Annotated[
        DType,
        Field(description="of weights and activations; auto is float32 on CPU, bfloat16 on CUDA"),
    ] = DType.AUTO
    quantization: Annotated[
        Literal["auto", "none", "int8", "int4"],
        Field(
            description="weights on CPU as integers, which the C++ kernels multiply with: auto"
            " keeps a GGUF file's blocks and the 16 bits of decoders that attend to an encoder, and"
            " leaves other checkpoints as they are; none: numbers of dtype; int8, int4: any"
            " checkpoint, in groups of 32. On CUDA auto keeps fp8 where there are products for it"
        ),
    ] = "auto"
    kv_cache_dtype: Annotated[
        KVCacheDType,
        Field(description="type of cached keys and values; auto: the type of the weights"),
    ] = KVCacheDType.AUTO
    threads: Annotated[
        int | None,
        Field(ge=1, description="CPU threads of the model; by default the cores that it may use"),
    ] = None

    tensor_parallel_size: Annotated[
        int, Field(ge=1, description="processes that share each layer of the model")
    ] = 1

    enable_expert_parallel: Annotated[
        bool,
        Field(
            description="with tensor_parallel_size above 1, each process has whole experts of a"
            " mixture instead of a share of each; not with max_loras"
        ),
    ] = False

    cpu_kernels: Annotated[
        Literal["auto", "on", "off"],
        Field(
            description="C++ kernels for float32 on CPU, compiled by the install, the image or the"
            " first start: auto uses them if a measurement shows that they are faster; on requires"
            " them"
        ),
    ] = "auto"

    attention_backend: Annotated[
        Literal["auto", "torch", "flashinfer"],
        Field(
            description="what computes attention and norms on CUDA: auto is flashinfer if it is"
            " installed and supports the model, else torch; flashinfer requires it; torch is the"
            " only one on CPU, and does not use CUDA graphs"
        ),
    ] = "auto"
    cuda_graph_max_batch: Annotated[
        int,
        Field(
            ge=0,
            description="largest decode batch that runs as a CUDA graph, 0 for none; graphs are"
            " captured at the start for some batch sizes up to it",
        ),
    ] = 256
    cuda_graph_max_tokens: Annotated[
        int,
        Field(
            ge=0,
            description="most tokens of a step with prompts that runs as CUDA graphs of all but"
            " attention, 0 for none; these too are captured at the start",
        ),
    ] = 1024

    memory_gib: Annotated[
        float | None,
        Field(
            gt=0,
            description="memory for weights and KV pool of all ranks together, in GiB; by default 2"
            " on CPU, and the free memory of the GPUs on CUDA, which must have this much",
        ),
    ] = None
    mem_fraction_static: Annotated[
        float,
        Field(
            gt=0,
            lt=1,
            description="the KV pool's share of the memory that the weights leave, and on CUDA also"
            " the largest steps, which are measured at the start",
        ),
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
            " and of the host's (more if one request needs more); 1 keeps all layers in one pool",
        ),
    ] = 0.5
    max_running_requests: Annotated[
        int, Field(ge=1, description="most requests that run at once")
    ] = 256
    context_length: Annotated[
        int | None,
        Field(ge=1, description="tokens a request may have; by default the model's limit"),
    ] = None
    page_size: Annotated[int, Field(ge=1, le=256, description="tokens per KV page")] = 16

    chunked_prefill_size: Annotated[
        int, Field(ge=1, description="token budget of a step; longer prompts run in chunks")
    ] = 4096
    overlap_schedule: Annotated[
        bool, Field(description="plan a step while the previous one still runs")
    ] = True
    batching: Annotated[
        Literal["decode-first", "prefill-first"],
        Field(
            description="decode-first: a step runs every stream and fills its budget with prompts;"
            " prefill-first: prompts get whole steps, and streams wait for them"
        ),
    ] = "decode-first"
    schedule_policy: Annotated[
        str,
        one_of(SCHEDULE_POLICIES),
        Field(description=described("which waiting request runs first", SCHEDULE_POLICIES)),
    ] = "lpm"
    max_passed_over: Annotated[
        int, Field(ge=0, description="how many later requests may start before a waiting one")
    ] = 256
    new_token_ratio: Annotated[
        float,
        Field(
            gt=0,
            le=1,
            description="share of max_tokens that is reserved for each running request at first; it"
            " falls while this is enough, and rises with each retraction",
        ),
    ] = 0.7
    watermark: Annotated[
        float, Field(ge=0, lt=1, description="share of the KV pool that admission leaves free")
    ] = 0.01
    max_queued_requests: Annotated[
        int, Field(ge=1, description="most waiting requests; further ones get 503")
    ] = 1024
    radix_cache: Annotated[bool, Field(description="cache prefixes and reuse them")] = True
    eviction_policy: Annotated[
        str,
        one_of(EVICTION_POLICIES),
        Field(description=described("which cached prefix is evicted first", EVICTION_POLICIES)),
    ] = "lru"
    host_memory_gib: Annotated[
        float,
        Field(ge=0, description="host memory for cached prefixes that the KV pool evicts, in GiB"),
    ] = 0.0
    host_write: Annotated[
        Literal["write-back", "write-through-selective"],
        Field(
            description="when a prefix is copied to host memory: when it is evicted, or after its"
            " second hit"
        ),
    ] = "write-back"

    image_hosts: Annotated[
        str,
        Field(
            description="hosts that image_url may name, with commas between them, host:port for"
            " another port than the scheme's own; by default none, and only data: URLs are read"
        ),
    ] = ""
    max_image_bytes: Annotated[
        int, Field(ge=1, description="largest image as it is sent, in bytes")
    ] = 20 * 1024 * 1024
    max_image_pixels: Annotated[
        int, Field(ge=1, description="largest image, or frame of a video, in pixels")
    ] = 32 * 1024 * 1024
    max_images: Annotated[int, Field(ge=0, description="most images and videos in a request")] = 8
    max_video_bytes: Annotated[
        int, Field(ge=1, description="largest video as it is sent, in bytes")
    ] = 40 * 1024 * 1024
    max_video_seconds: Annotated[float, Field(gt=0, description="longest video, in seconds")] = (
        600.0
    )
    max_video_frames: Annotated[
        int, Field(ge=2, description="most frames of a video that the model sees")
    ] = 768
    max_audio_bytes: Annotated[
        int, Field(ge=1, description="largest file of sound as it is sent, in bytes")
    ] = 25 * 1024 * 1024
    max_audio_seconds: Annotated[
        float, Field(gt=0, description="longest file of sound, in seconds")
    ] = 1500.0
    image_tokens_per_step: Annotated[
        int,
        Field(
            ge=1,
            description="image tokens that the vision tower computes in a step, of one image at"
            " least; more make streams wait longer beside new images",
        ),
    ] = 1024
    encoder_tokens_per_step: Annotated[
        int,
        Field(
            ge=1,
            description="positions that an encoder-decoder's encoder computes in a step, of one"
            " input at least; more make streams wait longer beside new inputs",
        ),
    ] = 2048
    image_cache_mib: Annotated[
        int,
        Field(
            ge=1,
            description="memory of each rank for the embeddings of recent images, in MiB; only a"
            " model with a vision tower takes it",
        ),
    ] = 128

    lora_modules: Annotated[
        Words,
        AfterValidator(_are_modules),
        Field(
            description="LoRA adapters to serve from the start, name=path of a folder in PEFT's"
            " format or name=hub id; the name is a model name in the API. The worker is ready once"
            " all are checked"
        ),
    ] = ()
    pinned_loras: Annotated[
        Words, Field(description="names of lora_modules that always stay in device memory")
    ] = ()
    max_loras: Annotated[
        int | None,
        Field(
            ge=0,
            le=1024,
            description="LoRA adapters in device memory at once, which one batch may mix; 0: none"
            f" are served. By default {LORA_SLOTS} if lora_modules names any, else 0",
        ),
    ] = None
    max_lora_rank: Annotated[
        int, Field(ge=1, le=256, description="largest rank of an adapter; higher ones are refused")
    ] = 64
    lora_ranks: Annotated[
        int | None,
        Field(
            ge=1,
            description="sum of the ranks of all adapters in device memory, each rounded up to a"
            f" multiple of {RANK_PAGE}, for linear layers outside experts; by default {RANK_PAGE}"
            " for each of max_loras, and at least max_lora_rank",
        ),
    ] = None
    lora_host_mib: Annotated[
        int,
        Field(
            ge=1,
            description="host memory for adapters that were used before, in MiB, with the shares of"
            " all ranks; the rest is read from disk when it is needed",
        ),
    ] = 1024

    log_every_steps: Annotated[
        int, Field(ge=0, description="steps between two log lines on the load; 0 for none")
    ] = 200
    profile: Annotated[
        Path | None, Field(description="directory to write a trace of the first busy steps to")
    ] = None

    drop_volatile_lines: Annotated[
        bool,
        Field(
            description="leave the first lines that agents write anew for every call out of"
            " prompts, so that the rest is found in the cache (docs/agents.md)"
        ),
    ] = True
    tool_call_parser: Annotated[
        str,
        one_of(TOOL_FORMATS, "auto"),
        Field(
            description="format of the model's tool calls; auto: read from its chat template. Where"
            " the template shows no tools it is Pando's own, which shows them"
        ),
    ] = "auto"
    reasoning_parser: Annotated[
        str,
        one_of(REASONING_FORMATS, "auto", "none"),
        Field(
            description=described(
                "where the model's reasoning stands; auto: read from its chat template",
                REASONING_FORMATS,
            )
        ),
    ] = "auto"
    pooling: Annotated[
        Literal["auto", "last", "mean", "cls", "max"],
        Field(
            description="which hidden states make an embedding: the last token's, the mean of all,"
            " the first token's, or each number's largest; auto: as in the model's 1_Pooling, else"
            " the mean for text encoders and the last for other models"
        ),
    ] = "auto"
    max_body_bytes: Annotated[
        int, Field(ge=1, description="largest request body; larger ones get 413")
    ] = 64 * 1024 * 1024
    max_connections: Annotated[
        int,
        Field(
            ge=64,
            description="most open connections of clients, fewer if the system allows fewer open"
            " files; above it the connection that has been idle longest is closed",
        ),
    ] = 16_384
    max_body_values: MaxBodyValues = 262_144
    max_bodies_bytes: MaxBodiesBytes = 1024 * 1024 * 1024
    header_timeout: HeaderTimeout = 10.0
    body_timeout: BodyTimeout = 60.0
    min_body_rate: MinBodyRate = 1024
    keep_alive_timeout: KeepAliveTimeout = 75.0
    max_header_bytes: MaxHeaderBytes = 64 * 1024
    write_timeout: Annotated[
        float,
        Field(
            gt=0,
            description="seconds after which a client that does not read its answer is"
            " disconnected; keep it longer than the router's own",
        ),
    ] = 120.0
    max_unread_bytes: Annotated[
        int,
        Field(ge=1, description="most output that is buffered for a slow client of one request"),
    ] = 4 * 1024 * 1024
    drain_seconds: Annotated[
        float, Field(ge=0, description="time for running requests after SIGTERM, in seconds")
    ] = 30.0
    hand_off_seconds: Annotated[
        float,
        Field(
            ge=0,
            description="time after SIGTERM in which routers may compute elsewhere the prefixes"
            " that only this worker has cached, if the operator asks for it, in seconds",
        ),
    ] = 0.0
    response_store_mib: Annotated[
        int,
        Field(ge=0, description="memory for responses of /v1/responses that later ones go on from"),
    ] = 64
    response_store_seconds: Annotated[
        float, Field(gt=0, description="time after its last use for which a response is kept")
    ] = 3600.0
    request_timeout_seconds: Annotated[
        float | None,
        Field(gt=0, description="longest duration of a request, after which it gets 504"),
    ] = None
    watchdog_seconds: Annotated[
        float,
        Field(
            ge=1,
            description="seconds of silence from the engine, beyond the expected duration of its"
            " steps, after which the worker exits",
        ),
    ] = 60.0
    compat_metrics: Annotated[
        bool, Field(description="also export the main gauges under vLLM's names")
    ] = False
    otlp_endpoint: OtlpEndpoint = None
    trace_sample: Annotated[
        float,
        Field(
            ge=0,
            le=1,
            description="sampled share of the traces that begin here; a router's traceparent"
            " decides for its own",
        ),
    ] = 1.0

    @model_validator(mode="after")
    def _flashinfer_has_a_gpu(self) -> "WorkerSettings":
        if self.attention_backend == "flashinfer" and self.device != "cuda":
            raise ValueError(f"attention_backend 'flashinfer' needs device cuda, not {self.device}")
        return self

    @model_validator(mode="after")
    def _prefill_holds_a_page(self) -> "WorkerSettings":
        if self.chunked_prefill_size < self.page_size:
            raise ValueError(
                f"chunked_prefill_size ({self.chunked_prefill_size}) must not be below page_size"
                f" ({self.page_size})"
            )
        return self

    @model_validator(mode="after")
    def _host_memory_holds_prefixes(self) -> "WorkerSettings":
        if self.host_memory_gib and not self.radix_cache:
            raise ValueError("host_memory_gib needs radix_cache, which is off")
        return self

    @model_validator(mode="after")
    def _experts_are_shared_out(self) -> "WorkerSettings":
        if self.enable_expert_parallel and self.tensor_parallel_size == 1:
            raise ValueError("enable_expert_parallel needs tensor_parallel_size above 1")
        if self.enable_expert_parallel and self.max_loras:
            raise ValueError("enable_expert_parallel does not go with max_loras")
        return self

    @model_validator(mode="after")
    def _longest_body_finds_room(self) -> "WorkerSettings":
        if self.max_bodies_bytes < self.max_body_bytes:
            raise ValueError("max_bodies_bytes must be at least max_body_bytes")
        return self

    @model_validator(mode="after")
    def _adapters_fit(self) -> "WorkerSettings":
        names = {name for name, _ in self.lora_paths}
        if unknown := sorted(set(self.pinned_loras) - names):
            raise ValueError(f"pinned_loras has {unknown[0]!r}, which lora_modules does not name")
        if self.lora_modules and self.max_loras == 0:
            raise ValueError("lora_modules needs max_loras above 0")
        if self.lora_ranks is not None and self.lora_ranks < self.max_lora_rank:
            raise ValueError(
                f"lora_ranks ({self.lora_ranks}) must not be below max_lora_rank"
                f" ({self.max_lora_rank})"
            )
        return self

    @property
    def served_name(self) -> str:
        """The name in the API: by default that of the model's folder, file or hub repository."""
        return self.served_model_name or _name_of(self.model)

    @property
    def lora_paths(self) -> list[tuple[str, str]]:
        """Name and path of each of `lora_modules`."""
        return [(name, path) for name, _, path in (m.partition("=") for m in self.lora_modules)]

    @property
    def adapter_slots(self) -> int:
        """Adapters in device memory at once; 0 if none are served."""
        if self.max_loras is None:
            return LORA_SLOTS if self.lora_modules else 0
        return self.max_loras

    @property
    def adapter_pages(self) -> int:
        """Rank pages of all slots together; 0 if no adapters are served."""
        ranks = self.lora_ranks or max(self.adapter_slots * RANK_PAGE, self.max_lora_rank)
        return -(-ranks // RANK_PAGE) if self.adapter_slots else 0
