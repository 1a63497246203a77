"""Files of clients, read in processes of their own: a decoder that crashes on one, or computes for
seconds, must not take the streams of others with it.

Read in this order:
    pool.py        the processes: bounds, cancellation, what a process does once it is loaded
    array_file.py  arrays on their way from such a process to the HTTP process
    memory.py      bounds the memory that a file may take in its process
    cpu_time.py    bounds the time
    torchless.py   lets transformers do without torch, which such a process does not need

What is read is the business of `vision/` and `audio/`. Imports of the worker's other rooms only
`parent.py`.
"""
