"""Engines that run the same prompts in turn, each in its own process."""
