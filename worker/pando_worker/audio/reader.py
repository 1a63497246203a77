"""`AudioReader`: files of requests, decoded beside the event loop and within bounds."""

from pathlib import Path

from pando_worker.audio.errors import AudioUnavailableError
from pando_worker.audio.files import AudioLimits
from pando_worker.audio.heard import Heard
from pando_worker.audio.hearing import FeatureForm, hear, known, load
from pando_worker.reading.pool import ReadingPool


class AudioReader:
    """
    Attributes:
        form: of the model's feature extractor; None until a process is `loaded`
    """

    def __init__(self, model_dir: Path, limits: AudioLimits, *, processes: int = 2) -> None:
        self.form: FeatureForm | None = None
        self.limits = limits
        # The engine waits for features: on idle cores alone, files that come together would be
        # read, encoded and decoded one after the other, as an engine on all cores leaves none.
        self.pool = ReadingPool(
            "files of sound",
            AudioUnavailableError,
            load,
            (model_dir,),
            processes=processes,
            only_idle_cores=False,
        )

    async def loaded(self) -> None:
        """Wait until a process can read files.

        Raises:
            AudioUnavailableError: it has logged why it cannot.
        """
        self.form = await self.pool.run(known)

    async def read(self, data: bytes) -> Heard:
        """
        Raises:
            AudioError: it is not sound that this worker accepts.
            AudioUnavailableError: too many are being read, or a process ended.
        """
        with self.pool.counted(), self.pool.cancellable() as number:
            (heard,) = await self.pool.read(hear, data, self.limits, number)
            return heard

    def close(self) -> None:
        self.pool.close()
