"""Where and with what a model is computed: device, types, kernels, processes."""

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings


class DType(StrEnum):
    AUTO = "auto"
    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


class ComputeSettings(BaseSettings):
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
    threads: Annotated[
        int | None,
        Field(ge=1, description="CPU threads of the model; by default the cores that it may use"),
    ] = None
    cpu_kernels: Annotated[
        Literal["auto", "on", "off"],
        Field(
            description="C++ kernels for float32 on CPU, compiled by the install, the image or the"
            " first start: auto uses them if a measurement shows that they are faster; on requires"
            " them"
        ),
    ] = "auto"
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

    @model_validator(mode="after")
    def _flashinfer_has_a_gpu(self) -> Self:
        if self.attention_backend == "flashinfer" and self.device != "cuda":
            raise ValueError(f"attention_backend 'flashinfer' needs device cuda, not {self.device}")
        return self
