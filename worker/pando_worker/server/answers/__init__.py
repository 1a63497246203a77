"""Sends a generation as an HTTP answer, whole or streamed.

Read in this order:
    answer.py             the answer itself, for any API
    chat_form.py          the form of a chat
    openai_objects.py     OpenAI's objects
    typed_events.py       what the next two APIs' events have in common
    message_form.py       the form of Anthropic's messages
    anthropic_objects.py  their objects and events
    response_form.py      the form of OpenAI's responses
    response_objects.py   their objects and events
    scores.py             scores, ranks and labels of texts
    scored_pieces.py      the tokens of each piece of an output
    logprobs.py           log-probabilities in OpenAI's two forms

Imports generation and protocol; knows no endpoint.
"""
