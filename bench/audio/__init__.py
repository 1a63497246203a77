"""Benchmarks of speech to text, with whisper-base and real speech; `examples/audio/fetch.py` gets
both.

Read in this order:
    throughput.py   files per second against transformers' pipeline, and a repeated file's answer
    decode_step.py  one step of the decoder, by the types of its weights and keys
    speech_files.py  files of 30 s, made of sentences
    pipeline.py     transformers' pipeline in a process of its own
"""
