"""A generation as an HTTP answer, whole or streamed.

Read in this order:
    answer.py          in the form of any API
    chat_form.py       a chat's form
    openai_objects.py  OpenAI's objects
    logprobs.py        log-probabilities in OpenAI's two forms

Imports generation and protocol; knows no endpoint.
"""
