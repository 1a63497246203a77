"""What clients of routers and workers have in common.

    errors.py            one exception, in the form of OpenAI's errors
    anthropic_errors.py  the same in the form of Anthropic's API
    api_key.py           a request's API key
    request_id.py        the client's request id, or a new one
    time_limit.py        a request's time limit, from its headers
    json_values.py       how many values a JSON text has, counted while it arrives
    off_loop.py          a thread for work that grows with a body
    body_process/        a process for work on the largest bodies
    form.py              bodies of multipart/form-data
    listener.py          a socket on every address, of both families
    open_files.py        how many files, and so connections, a process may have open
    server/              the HTTP server

Imports nothing else of this package.
"""
