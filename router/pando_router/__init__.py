"""The router: takes OpenAI requests, places each on a replica, and streams the answer back.

Read in this order:
    serve.py         the command: settings, processes, shutdown
    app.py           assembles a router
    data_path/       a request's path: proxy, reception, driver, sending, relay
    core/            decides the next action for a request, without I/O
    exchange/        the record of one request, and the events that listeners receive
    placing/         chooses a replica: by policy and the shared placement, or without Redis
    policies/        the policies: round robin, least loaded, and others
    admission/       queues requests while every replica is full
    endpoints/       one module per API path: chat, completions, responses
    parsing/         where bodies are parsed: in the event loop, beside it, in a process
    requests/        parses the bodies that endpoints have in common
    http/            HTTP/1.1 to replicas; the server for clients is fleet's
    migration/       continues a lost stream at another replica
    adapters/        loads and unloads LoRA adapters at all replicas of a pool
    kept_responses/  responses that one replica's engine keeps
    fleet_view/      the fleet and Redis, as this router last saw them
    health/          health checks of replicas
    upstreams/       engines that send no heartbeats: vLLM, SGLang, llama.cpp
    warming/         warms a replica that joins, hands off prefixes of one that leaves
    tenants/         API keys checked, rates limited, tokens charged
    api_keys/        the file of API keys
    listeners/       listeners of request events: access log, metrics, charging, traces
    recording/       records requests for the simulator
    explaining/      explains placements
    telemetry/       metrics, spans, and rate-limited log lines
    control/         everything but the data path: /fleet, /v1/models, /metrics, /readyz
    dashboard/       the dashboard page
    chat/            the page to talk to the models
    pages/           what the pages have in common
    configuration/   settings, their types, and their reload
    process/         several processes, requests that run, the end, background tasks
    errors.py        how errors are sent

Imports fleet. A request follows `data_path/`; `core/` and `placing/` decide. `pyproject.toml` lists
the layers.
"""
