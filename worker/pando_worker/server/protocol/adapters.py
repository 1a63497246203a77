"""Requests that load and unload LoRA adapters, in vLLM's form."""

from typing import Annotated

from pydantic import Field

from pando_worker.server.protocol.base import RequestBody


class LoadAdapterRequest(RequestBody):
    """POST /v1/load_lora_adapter"""

    lora_name: str
    lora_path: Annotated[str, Field(min_length=1, max_length=4096)]
    load_inplace: bool = False  # replace the adapter that has the name
    # Keep it in device memory; null: as what it replaces
    pin: bool | None = None


class UnloadAdapterRequest(RequestBody):
    """POST /v1/unload_lora_adapter"""

    lora_name: str
