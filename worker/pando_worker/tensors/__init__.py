"""What torch's tensors need beside computing.

    transfer.py    arrays to the device and back, without waiting for it
    huge_pages.py  huge pages for large tensors in host memory

Imports nothing else of the worker.
"""
