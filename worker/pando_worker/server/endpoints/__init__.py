"""The worker's HTTP endpoints, one file per API.

Read in this order:
    chat.py          /v1/chat/completions
    responses.py     /v1/responses
    messages.py      /v1/messages, Anthropic's
    completions.py   /v1/completions
    embeddings.py    /v1/embeddings
    classify.py      /classify, vLLM's form
    pairs.py         /rerank and /score: how well texts fit each other
    native.py        /generate, SGLang's form
    speech.py        /v1/audio/transcriptions and /v1/audio/translations
    tokenization.py  /tokenize and /detokenize
    adapters.py      LoRA adapters are loaded and unloaded
    control.py       liveness, readiness, models, metrics, cache flush, abort
    probes.py        what other routers, gateways and load tools ask of an engine

Each parses its body with `protocol/`, makes jobs with `jobs/`, and answers with `answers/`.
"""
