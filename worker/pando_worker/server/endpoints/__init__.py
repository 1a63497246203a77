"""The paths of a worker, one file an API.

Read in this order:
    chat.py          /v1/chat/completions
    completions.py   /v1/completions
    embeddings.py    /v1/embeddings
    native.py        /generate, SGLang's form
    tokenization.py  /tokenize and /detokenize
    control.py       health, readiness, models, metrics, abort

Each reads its body with `protocol/`, makes jobs with `jobs/`, and sends with `answers/`.
"""
