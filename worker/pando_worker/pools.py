"""`Pools`: the sizes of a loaded model's pools, which its scheduler allocates from."""

from dataclasses import dataclass, field

from pando_worker.rates import Rate


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceForm:
    """What an encoder-decoder's encoder reads."""

    positions: int  # that it makes of a source, at most
    # Of audio, whose features are [mel_bins, 2 * positions], always as many; 0: it reads token ids
    mel_bins: int
    vocab_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Pools:
    """The page size is a setting (`page_size`)."""

    capacity_tokens: int
    context_length: int  # tokens that a request may have
    window: int = 0  # of the layers that release pages behind it; 0 if all layers share one pool
    window_pages: int = 0
    # The runner keeps page tables of its own, and wants each step's changes.
    keeps_tables: bool = False
    image_tokens: int = 0  # whose embeddings are kept; 0 without a vision tower
    # Of an image, if these see each other, so that one step runs them all; 0: images may be cut
    whole_image_tokens: int = 0
    source: SourceForm | None = None  # of an encoder-decoder
    # Each step runs whole prompts and nothing of them is kept, as in models whose tokens see later
    # ones. The capacity is what steps in flight may run then.
    whole_prompts: bool = False
    host_pages: int = 0  # 0 without a host tier
    host_window_pages: int = 0
    adapter_slots: int = 0  # adapters in device memory at a time; 0: adapters are off
    adapter_pages: int = 0  # of device memory for all of them, each of RANK_PAGE ranks
    weight_bytes: int = 0  # of one rank, beside the pools
    host_page_bytes: int = 0  # of one page of all layers
    copy_rate: Rate = field(default_factory=Rate)  # bytes copied to and from the host, as measured
