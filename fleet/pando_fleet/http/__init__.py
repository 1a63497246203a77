"""What clients of routers and workers have in common.

    errors.py      one exception, in the form of OpenAI's errors
    request_id.py  the client's request id, or a new one
    time_limit.py  a request's time limit, from its headers
    listener.py    a socket on every address, of both families
    open_files.py  how many files, and so connections, a process may have open

Imports nothing else of this package.
"""
