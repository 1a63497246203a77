"""The router: takes OpenAI requests, places each at a replica, and streams the answer back.

Read in this order:
    serve.py         the command: settings, processes, an orderly end
    app.py           puts a router together
    data_path/       a request's way: proxy, reception, driver, sending, relay
    core/            decides what becomes of a request, without I/O
    exchange/        one request on its way, and what becomes of it
    placing/         which replica: policies, the shared placement, Redis or not
    admission/       requests that wait, because every replica is full
    endpoints/       what the router knows of each path: chat, completions, responses
    requests/        how endpoints read bodies
    http/            HTTP/1.1, to clients and to replicas
    migration/       a lost stream goes on at another replica
    kept_responses/  responses that one replica's engine keeps
    fleet_view/      the fleet and Redis, as this router last knew them
    health/          which replicas are well
    upstreams/       engines that send no heartbeats: vLLM, SGLang, llama.cpp
    warming/         prefixes handed to a replica that joins, or off one that leaves
    tenants/         who asks, what they may, and how much
    api_keys/        the file of API keys
    listeners/       who follows requests: access log, metrics, charging, traces
    recording/       requests written down, for the simulator
    explaining/      why a request goes where it goes
    telemetry/       metrics, spans, and log lines with a bound
    control/         everything but the data path: /fleet, /metrics, /route/explain
    dashboard/       the page
    configuration/   settings, their types, and their reload
    process/         several processes, readiness and the end, work in the background
    errors.py        how errors are sent
    current.py       a value that a reload replaces

Imports fleet. A request's way is `data_path/`; who decides is `core/` and `placing/`. The layers
are in `pyproject.toml`.
"""
