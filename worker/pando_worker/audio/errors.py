"""Why a file of sound cannot be used."""


class AudioError(Exception):
    """The client sent something that is not sound, or not such that this worker accepts it. The
    message continues a sentence that begins with the name of the field: "file is not ..."."""


class AudioUnavailableError(Exception):
    """This worker cannot read files of sound now: too many wait already, or a process ended."""


class AudioModelError(Exception):
    """The files of the model lack what transcriptions need."""
