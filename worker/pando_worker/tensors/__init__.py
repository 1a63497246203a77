"""Moving tensors and placing them in memory.

    transfer.py      copies arrays to the device and back without waiting for it
    fixed_arrays.py  arrays that go to the device together, in the same memory each time
    pinned.py        large tensors in pinned host memory
    huge_pages.py    huge pages for large tensors in host memory

Imports no other package of the worker.
"""
