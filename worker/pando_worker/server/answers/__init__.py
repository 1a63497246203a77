"""Sends a generation as an HTTP answer, whole or streamed.

Read in this order:
    answer.py          the answer itself, for any API
    chat_form.py       the form of a chat
    openai_objects.py  OpenAI's objects
    logprobs.py        log-probabilities in OpenAI's two forms

Imports generation and protocol; knows no endpoint.
"""
