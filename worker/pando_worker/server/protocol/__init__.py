"""The bodies of requests, as msgspec reads them.

base.py         what all have in common
sampling.py     how to sample
openai.py       what OpenAI's chats and completions share
chat.py         conversations
completions.py  text completions
embeddings.py   embeddings
native.py       SGLang's /generate
control.py      /tokenize, /detokenize, /abort_request
"""
