"""Normalisation: by root mean square (`rms.py`), by that of all heads together (`heads.py`), and by
mean and variance (`layer_norm.py`)."""
