"""Engines that run the same prompts in turns, each in a process of its own."""
