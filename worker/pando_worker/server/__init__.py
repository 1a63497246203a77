"""The HTTP process of a worker: the API, texts to tokens and back, heartbeats.

Read in this order:
    app.py            the application: routes and error forms
    front/            the HTTP server's edge: connections, bounds, the gate
    endpoints/        one file an API
    protocol/         what clients may send
    jobs/             from a request that was understood to what the scheduler gets
    service.py        what every endpoint works with
    generation.py     from token ids to text, as every endpoint shares it
    text/             tokenizer, stop strings, parsers of reasoning and tool calls
    answers/          a generation as an HTTP answer
    engine_client.py  the pipes to the scheduler process
    process/          the process's life: start, heartbeats, watchdog, drain, end
    pooling.py        how hidden states become an embedding
    errors.py         how errors are sent
    metrics.py        every metric
    tracing.py        spans of a request
    machine.py        what the worker runs on

Imports no torch, and neither scheduler nor engine: `messages` is what the two processes say to each
other.
"""
