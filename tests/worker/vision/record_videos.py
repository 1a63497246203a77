"""Writes `recorded_videos.npz`: what transformers' own video processors make of some videos.

They need torchvision, which Pando and its tests do without. In an environment with it:
`python -m tests.worker.vision.record_videos`.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FILE = Path(__file__).parent / "recorded_videos.npz"

SIZE = {"shortest_edge": 512, "longest_edge": 1536}
"""Bounds on pixels, of a picture or of all."""

FIELDS: dict[str, Any] = {"patch_size": 4, "size": SIZE, "fps": 2, "max_frames": 14}

# Frames, frames a second, height, width; and a further field.
SHOTS: list[tuple[int, float, int, int, dict[str, Any]]] = [
    (31, 12.5, 20, 29, {}),
    (7, 30.0, 90, 40, {}),
    (61, 10.0, 33, 17, {"cap_pixels_per_frame": True, "max_video_tokens": 20}),
    (2, 1.0, 6, 50, {}),
    (29, 29.97, 48, 48, {"min_frames": 5}),
]
COUNTS = [2, 3, 5, 24, 47, 100, 101, 899, 4000]
RATES = [1.0, 7.5, 12.5, 23.976, 25.0, 29.97, 60.0]


def shot(number: int) -> NDArray[np.uint8]:
    """Its frames, [frames, height, width, 3]."""
    count, _, height, width, _ = SHOTS[number]
    return np.random.default_rng(number).integers(0, 256, (count, height, width, 3), dtype=np.uint8)


def main() -> None:
    from transformers.models.qwen2_5_vl.processing_qwen2_5_vl import Qwen2_5_VLProcessor
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
    from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor
    from transformers.models.qwen3_vl.processing_qwen3_vl import Qwen3VLProcessor
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor
    from transformers.video_utils import VideoMetadata

    from tests.worker.vision.qwen import VIDEO, tokenizer_with

    found: dict[str, Any] = {}
    for name, wholes, videos in (
        ("seconds", Qwen2_5_VLProcessor, Qwen2VLVideoProcessor),
        ("text", Qwen3VLProcessor, Qwen3VLVideoProcessor),
    ):
        for number, (count, rate, height, width, more) in enumerate(SHOTS):
            processor: Any = videos(do_sample_frames=True, **{**FIELDS, **more})
            whole: Any = wholes(Qwen2VLImageProcessorPil(), tokenizer_with(), processor)
            one = VideoMetadata(count, rate, width, height, count / rate)
            made = whole(
                text=[f"<|vision_start|>{VIDEO}<|vision_end|>"],
                videos=[shot(number)],
                video_metadata=[one],
                return_tensors="pt",
            )
            mean, std = (
                255 * np.repeat(np.array(part, np.float32), 2 * 4 * 4)
                for part in (processor.image_mean, processor.image_std)
            )
            pixels = made["pixel_values_videos"].numpy() * std + mean
            key = f"{name} {number}"
            found[f"{key} pixels"] = pixels.round().astype(np.uint8)
            found[f"{key} grid"] = made["video_grid_thw"][0].numpy()
            found[f"{key} ids"] = made["input_ids"][0].numpy()
            if name == "seconds":
                found[f"{key} step"] = np.array(made["second_per_grid_ts"], np.float32)
        for count in COUNTS:
            for rate in RATES:
                processor = videos(fps=2)
                indices = processor.sample_frames(VideoMetadata(count, rate))
                found[f"{name} {count} {rate}"] = np.asarray(indices)
    np.savez_compressed(FILE, **found)


if __name__ == "__main__":
    main()
