"""What the served model can do, by its files and the settings: formats, sight, hearing."""

import logging
from pathlib import Path

from pando_worker.audio.errors import AudioModelError
from pando_worker.audio.tokens import read_tokens
from pando_worker.messages import Pooling
from pando_worker.models.config import ModelConfig
from pando_worker.models.errors import UnsupportedModel
from pando_worker.models.generation_config import (
    SAMPLING,
    read_generation_config,
    without_effect,
)
from pando_worker.models.kinds.encoder_decoder import AudioInput
from pando_worker.models.sight import blindness
from pando_worker.parsers.registry import reasoning_format, tool_format
from pando_worker.server.hearing import Hearing
from pando_worker.server.images import Sight
from pando_worker.server.pooling import Embeddings, NoEmbeddings, read_pooling
from pando_worker.server.service import ServedModel
from pando_worker.server.source_text import read_source_texts
from pando_worker.server.text.tokenizer import Tokenizer
from pando_worker.settings import WorkerSettings

log = logging.getLogger("pando.worker")


def served_model(
    settings: WorkerSettings, config: ModelConfig, tokenizer: Tokenizer
) -> ServedModel:
    """Raises ModelError for an unusable generation config or pooling config."""
    model_dir = Path(settings.model)
    generation = read_generation_config(
        model_dir,
        tokenizer.eos_token_id,
        config.vocab_size,
        {name: getattr(settings, f"default_{name}") for name in SAMPLING},
    )
    if ignored := without_effect(model_dir, hears=isinstance(config.encoder, AudioInput)):
        log.warning("of the model's generation_config.json, this has no effect: %s", ignored)
    calls = tool_format(settings.tool_call_parser, tokenizer.chat_template)
    if settings.tool_call_parser not in ("auto", calls.name):
        log.warning(
            "tool_call_parser is %r, but the model's chat template shows no tools to the model:"
            " calls have the form %r",
            settings.tool_call_parser,
            calls.name,
        )
    return ServedModel(
        name=settings.served_model_name or model_dir.name,
        tokenizer=tokenizer,
        generation=generation,
        source=read_source_texts(settings, config, generation, tokenizer),
        vocab_size=config.vocab_size,
        hidden_size=config.hidden_size,
        has_head=config.has_head,
        is_text_encoder=config.is_text_encoder,
        pooling=_pooling(settings, config),
        classifier=config.classifier,
        tool_format=calls,
        reasoning_format=reasoning_format(settings.reasoning_parser, tokenizer.chat_template),
    )


def sight_of(settings: WorkerSettings, config: ModelConfig, name: str) -> Sight | None:
    blind = blindness(config)
    if config.image_token is None or blind:
        return None
    from pando_worker.vision.reader import ImageLimits, ImageReader, Videos  # imports Pillow
    from pando_worker.vision.video_files import VideoLimits

    hosts = filter(None, map(str.strip, settings.image_hosts.lower().split(",")))
    limits = ImageLimits(settings.max_image_bytes, settings.max_image_pixels, frozenset(hosts))
    video_limits = VideoLimits(
        settings.max_video_bytes,
        settings.max_video_seconds,
        settings.max_video_frames,
        settings.max_image_pixels,
    )
    videos = Videos(config.video, video_limits) if config.video else None
    reader = ImageReader(Path(settings.model), config.image_token, limits, videos=videos)
    return Sight(reader, settings.max_images, name)


def hearing_of(
    settings: WorkerSettings, config: ModelConfig, tokenizer: Tokenizer
) -> Hearing | None:
    if not isinstance(config.encoder, AudioInput):
        return None
    from pando_worker.audio.files import AudioLimits
    from pando_worker.audio.reader import AudioReader  # imports numpy

    model_dir = Path(settings.model)
    try:
        tokens = read_tokens(model_dir, tokenizer.special_token("<|startofprev|>"))
    except AudioModelError as error:
        raise UnsupportedModel(str(error)) from error
    limits = AudioLimits(settings.max_audio_bytes, settings.max_audio_seconds)
    heard = config.encoder
    return Hearing(AudioReader(model_dir, limits), tokens, heard.positions, heard.mel_bins)


def _pooling(settings: WorkerSettings, config: ModelConfig) -> Embeddings | NoEmbeddings:
    if config.classifier is not None:
        return NoEmbeddings("it classifies texts: use /classify or /score")
    # What sentence-transformers assumes of a text encoder.
    default = Pooling.MEAN if config.is_text_encoder else Pooling.LAST
    return read_pooling(config.path.parent, settings.pooling, default=default)
