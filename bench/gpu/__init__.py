"""What `gpu_engine.py` is made of."""
