"""Prompts with films, as the HTTP process sends them, and what transformers answers."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers.video_utils import VideoMetadata

from pando_worker.messages import PromptImage
from pando_worker.models.config import read_config
from pando_worker.server.images import prompt_image
from pando_worker.vision.processed import Processed
from pando_worker.vision.video_files import VideoLimits, reading
from pando_worker.vision.videos import VideoProcessor, read_fields
from tests.worker.vision.checkpoints import IMAGE
from tests.worker.vision.prompts import Asked
from tests.worker.vision.qwen import QwenSeer

LIMITS = VideoLimits(max_bytes=10**7, max_seconds=60, max_frames=100, max_pixels=100_000)


@cache
def frames_of(model_dir: Path, film: bytes) -> list[Processed]:
    seer = QwenSeer(model_dir)
    form = read_config(model_dir).video
    assert form is not None
    processor = VideoProcessor(form, read_fields(model_dir, form), seer.processor.tokenizer)
    with reading(film, LIMITS, lambda: False) as video:
        return processor.process(video, LIMITS.max_frames)


@dataclass(frozen=True)
class Film:
    """Of which an even number of pictures is seen."""

    data: bytes = field(repr=False)
    count: int  # frames
    rate: int  # frames a second


@dataclass(frozen=True)
class AskedFilms(Asked):
    """A prompt with `VIDEO` in the place of each film, and `IMAGE` of each photograph."""

    films: tuple[Film, ...] = ()

    @cached_property
    def frames(self) -> list[list[Processed]]:
        """Of each film."""
        return [frames_of(self.seer.path, film.data) for film in self.films]

    @cached_property
    def ids(self) -> list[int]:
        return self._made[0]

    @cached_property
    def images(self) -> tuple[PromptImage, ...]:
        return tuple(self._made[1])

    @cached_property
    def _made(self) -> tuple[list[int], list[PromptImage]]:
        tokenizer, config = self.seer.processor.tokenizer, self.seer.model.config
        films = iter(self.frames)
        pictures = map(self.seer.ours.process, self.pictures)
        ids: list[int] = []
        images: list[PromptImage] = []
        text = self.text.replace(IMAGE, self.seer.processor.image_token)
        for token in tokenizer.encode(text, add_special_tokens=False):
            if token not in (config.image_token_id, config.video_token_id):
                ids.append(token)
                continue
            for one in next(pictures if token == config.image_token_id else films):
                images.append(prompt_image(one, len(ids)))
                ids += one.token_ids
        return ids, images

    def logits(self, output: Sequence[int] = ()) -> Tensor:
        """From whole films."""
        model: Any = self.seer.model
        ids = torch.tensor([[*self.ids, *output]])
        is_image, is_film = (
            ids == token for token in (model.config.image_token_id, model.config.video_token_id)
        )
        arrays: dict[str, Any] = {"mm_token_type_ids": is_image.int() + 2 * is_film.int()}
        if self.pictures:
            processor = self.seer.processor.image_processor
            arrays |= dict(processor(images=self.pictures, return_tensors="pt"))
        if self.films:
            grids = []
            for frames in self.frames:
                _, rows, columns = frames[0].arrays["image_grid_thw"][0].tolist()
                grids.append([len(frames), rows, columns])
            pixels = [one.arrays["pixel_values"] for frames in self.frames for one in frames]
            arrays["pixel_values_videos"] = torch.from_numpy(np.concatenate(pixels))
            arrays["video_grid_thw"] = torch.tensor(grids)
            if hasattr(model.config.vision_config, "tokens_per_second"):
                arrays["second_per_grid_ts"] = torch.tensor(self._seconds())
        with torch.inference_mode():
            found: Tensor = model(input_ids=ids, use_cache=False, **arrays).logits[0]
        return found

    def _seconds(self) -> list[float]:
        """From a frame of each film to the next, as the processor of Qwen2.5-VL has it."""
        seconds = []
        for film, frames in zip(self.films, self.frames, strict=True):
            known = VideoMetadata(film.count, film.rate, frames_indices=[0] * 2 * len(frames))
            seconds.append(2 / known.sampled_fps)
        return seconds
