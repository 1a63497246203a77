"""The bodies of requests, validated by pydantic.

base.py         the base class of all bodies
sampling.py     how to sample
openai.py       fields common to OpenAI's chats and completions
chat.py         conversations
completions.py  text completions
embeddings.py   embeddings
native.py       SGLang's /generate
adapters.py     LoRA adapters to load and unload
control.py      /tokenize, /detokenize, /abort_request
"""
