"""A small model that sees: `python -m examples.vision.train` makes one that tells coloured shapes
apart, and `python -m examples.vision.ask` asks a running Pando about a picture.

Read in this order:
    pictures.py   draws shapes, and says what a picture shows
    checkpoint.py the untrained model: tokenizer, processor, LLaVA 1.5's architecture
    train.py      trains it, and counts right answers on pictures that it never saw
    ask.py        the `openai` client: a picture, a question about it, and a second question
"""
