"""The formats of traces, each with a reader of its lines. To add one, copy `mooncake.py` and list
it in `FORMATS` of `../trace.py`.

format.py      what a format is, and how a first line shows it
mooncake.py    hashes of a prompt's blocks
text.py        real text: bodies of chats and completions, calls of agents
azure.py       lengths alone
recording.py   what routers record
sessions.py    agents' sessions, whose calls wait for each other
"""
