"""LoRA adapters: which of them have a slot of device memory, and what waits for one.

Read in this order:
    served.py   all adapters that requests may name; loads them, and closes some to make room
    adapter.py  one of them, as data

The slots are in `memory/adapter_slots.py`; `planning/waiting.py` has the requests that wait.
"""
