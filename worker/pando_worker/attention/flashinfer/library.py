"""The parts of the library flashinfer that are used. Written for flashinfer 0.7."""

from importlib import import_module
from typing import Any


class FlashinferUnavailable(Exception):  # noqa: N818, a state of the machine and no programming error
    """flashinfer is not installed or has no kernel for these layers; the message says which."""


class Library:
    """The parts of flashinfer that are used. Importing it takes seconds."""

    def __init__(self) -> None:
        """
        Raises:
            FlashinferUnavailable
        """
        try:
            root = import_module("flashinfer")
            attention = import_module("flashinfer.attention")
            latents = import_module("flashinfer.mla")
        except ImportError as error:
            raise FlashinferUnavailable(f"flashinfer cannot be imported: {error}") from error
        self.Decode: Any = root.BatchDecodeWithPagedKVCacheWrapper
        self.Prefill: Any = root.BatchPrefillWithPagedKVCacheWrapper
        self.SinkPrefill: Any = attention.BatchAttentionWithAttentionSinkWrapper
        self.Latents: Any = latents.BatchMLAPagedAttentionWrapper
        self.csr: Any = latents.MLAPlanMetadata.csr
        self.append_paged_kv_cache: Any = root.append_paged_kv_cache
        self.merge_state: Any = root.merge_state
