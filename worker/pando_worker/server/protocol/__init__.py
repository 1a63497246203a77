"""The bodies of requests, validated by pydantic.

base.py            the base class of all bodies
pieces.py          lists that may be long
sampling.py        how to sample
openai.py          fields common to OpenAI's chats and completions
chat.py            conversations
anthropic.py       Anthropic's messages, as chats
responses.py       OpenAI's responses, as chats
response_items.py  their items, as messages
turns.py           what these two have in common
completions.py     text completions
pooled.py          what the next three have in common
embeddings.py      embeddings
pairs.py           texts to rank and to score
classify.py        texts to classify
speech.py          transcriptions and translations
native.py          SGLang's /generate
adapters.py        LoRA adapters to load and unload
priority.py        its priority, by header
tenant.py          whose request it is
control.py         /tokenize, /detokenize, /abort_request
"""
