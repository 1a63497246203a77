"""The bodies of requests, validated by pydantic, and what their headers say.

Read in this order:
    base.py            the base class of all bodies
    pieces.py          lists that may be long
    validation.py      findings of pydantic as one error
    sampling.py        how to sample
    openai.py          fields common to OpenAI's chats and completions
    chats/             chats, and the two APIs that are read as chats
    completions.py     text completions
    pooled/            texts that become vectors: to embed, to rank, to classify
    speech.py          transcriptions and translations
    native.py          SGLang's /generate
    resume.py          answers that another worker began
    adapters.py        LoRA adapters to load and unload
    control.py         /tokenize, /detokenize, /abort_request
    headers/           deadline, priority, tenant, cache namespace
"""
