"""Which images, videos and files of sound a request may have."""

from typing import Annotated

from pydantic import Field
from pydantic_settings import BaseSettings


class MediaSettings(BaseSettings):
    image_hosts: Annotated[
        str,
        Field(
            description="hosts that image_url may name, with commas between them, host:port for"
            " another port than the scheme's own; by default none, and only data: URLs are read"
        ),
    ] = ""
    max_images: Annotated[int, Field(ge=0, description="most images and videos in a request")] = 8
    max_image_bytes: Annotated[
        int, Field(ge=1, description="largest image as it is sent, in bytes")
    ] = 20 * 1024 * 1024
    max_image_pixels: Annotated[
        int, Field(ge=1, description="largest image, or frame of a video, in pixels")
    ] = 32 * 1024 * 1024
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
    image_cache_mib: Annotated[
        int,
        Field(
            ge=1,
            description="memory of each rank for the embeddings of recent images, in MiB; only a"
            " model with a vision tower takes it",
        ),
    ] = 128
