"""The worker's HTTP endpoints, one file per API.

Read in this order:
    chat.py          /v1/chat/completions
    completions.py   /v1/completions
    embeddings.py    /v1/embeddings
    native.py        /generate, SGLang's form
    tokenization.py  /tokenize and /detokenize
    adapters.py      LoRA adapters are loaded and unloaded
    control.py       liveness, readiness, models, metrics, cache flush, abort

Each parses its body with `protocol/`, makes jobs with `jobs/`, and answers with `answers/`.
"""
