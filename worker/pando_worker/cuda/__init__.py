"""What is special where a model runs on an NVIDIA GPU."""
