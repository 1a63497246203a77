"""The parts of `gpu_engine.py`."""
