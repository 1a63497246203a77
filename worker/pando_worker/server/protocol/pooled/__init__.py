"""Requests whose texts become vectors.

Read in this order:
    fields.py          what they have in common
    embeddings.py      /v1/embeddings
    pairs.py           /rerank and /score
    classify.py        /classify
"""
