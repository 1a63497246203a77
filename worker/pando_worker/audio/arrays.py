"""The arrays that sound becomes."""

import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.float32]
"""[samples], mono, in [-1, 1]."""

Features = NDArray[np.float32]
"""[mel_bins, frames], logarithms of power."""
