"""Images of a request, from their URL to what the engine gets.

Read in this order:
    reader.py      what the HTTP process calls: bounds, pools, cancellation
    fetching.py    http(s) URLs, from allowed hosts on public addresses only
    decoding.py    bytes to an RGB image
    processing.py  an image to pixel values and prompt tokens, in processes of their own
    processors.py  loads the model's processor
    patches.py     that of Qwen-VL
    rows.py        that of Pixtral
    rules.py       how many tokens an image takes, for the routers
    errors.py      why an image cannot be used

Imports no other room of the worker. Without torch, except in the processes of `processing.py`,
where transformers imports it.
"""
