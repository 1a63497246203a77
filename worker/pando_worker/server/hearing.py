"""What a model that hears has beside one that reads text only."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pando_fleet.images.rule import ImageRule
from pando_fleet.images.sound_rule import SoundRule
from pando_worker.audio.drafts import Drafts
from pando_worker.audio.tokens import SpeechTokens

if TYPE_CHECKING:  # numpy takes time to import, and most models read text only
    from pando_worker.audio.reader import AudioReader


@dataclass(frozen=True, slots=True)
class Hearing:
    """
    Attributes:
        positions: that the encoder makes of a window
        mel_bins: of the features
        drafts: answers to windows, for equal ones
    """

    reader: "AudioReader"
    tokens: SpeechTokens
    positions: int
    mel_bins: int
    drafts: Drafts = field(default_factory=Drafts)

    @property
    def frames_per_s(self) -> float:
        form = self.reader.form
        assert form is not None
        return form.frames_per_s

    def tokens_of(self, seconds: float) -> int:
        """Positions that the encoder makes of a file."""
        rule = self.rule
        assert rule is not None and rule.sounds is not None
        return rule.sounds.tokens_of(seconds)

    @property
    def rule(self) -> ImageRule | None:
        """By which routers know a file's tokens; None until a process is loaded."""
        form = self.reader.form
        if form is None:
            return None
        window_s = form.window / form.frames_per_s
        return ImageRule(kind="none", sounds=SoundRule(window_s=window_s, tokens=self.positions))
