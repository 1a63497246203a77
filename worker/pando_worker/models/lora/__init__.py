"""What adapters (LoRA) add to a model's layers.

Read in this order:
    linear.py          to linear layers; adapters in device memory
    experts.py         which rows of a step's experts have which adapter
"""
