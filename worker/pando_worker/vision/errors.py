"""Why an image cannot be used."""


class ImageError(Exception):
    """The client sent something that is not an image, or not one that this worker accepts. The
    message continues a sentence that begins with the name of the field: "... is not an image"."""


class ImagesUnavailableError(Exception):
    """This worker cannot read images now: too many wait already, or a process ended."""
