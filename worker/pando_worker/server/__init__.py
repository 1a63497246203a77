"""The HTTP process of a worker: the API, tokenizing and detokenizing, heartbeats.

Read in this order:
    app.py             the application: routes and error forms
    front/             the HTTP server's edge: connections, limits, the gate
    endpoints/         one file per API
    protocol/          the bodies of requests
    jobs/              turns a parsed request into commands for the scheduler
    service.py         the state that all endpoints share
    speech/            windows of a file of sound, and transcriptions
    hearing.py         what a model that hears has
    source_text.py     prompts that an encoder reads
    languages.py       the languages of such prompts and of their outputs
    images.py          places the images of a conversation in its prompt
    generation.py      turns token ids into text, for all endpoints
    text/              tokenizer, output text, stop strings
    answers/           sends a generation as an HTTP answer
    adapters.py        LoRA adapters by name
    kept_responses.py  responses that later requests go on from
    engine_client.py   the pipes to the scheduler process
    engine_call.py     one client's requests there, and their unread output
    process/           the process's life: start, heartbeats, watchdog, drain, end
    pooling.py         how hidden states become an embedding
    dense_layers.py    the layers behind the pooling
    errors.py          how errors are sent
    metrics.py         every metric
    tracing.py         spans of a request
    machine.py         describes the hardware

Imports no torch, and neither scheduler nor engine: the two processes share only `messages`.
"""
