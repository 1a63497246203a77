"""Images and videos of a request, from their URL to what the engine gets.

Read in this order:
    reader.py       what the HTTP process calls
    fetching.py     http(s) URLs, from allowed hosts on public addresses only
    decoding.py     bytes to an RGB image
    bounds.py       what that may cost
    processing.py   an image to pixel values and prompt tokens, in processes of their own
    processors.py   loads the model's processor
    detail.py       what it is asked for by `detail`
    patches.py      that of Qwen-VL
    rows.py         that of Pixtral
    video_files.py  bytes to some of a video's frames
    videos.py       which frames, and these to pixel values and prompt tokens
    processed.py    what comes out
    rules.py        how many tokens an image takes, for the routers
    errors.py       why an image cannot be used

Imports of the worker's other rooms `reading/`, and what `models/` says of a model's files. Without
torch, except for videos in the processes of `processing.py`.
"""
