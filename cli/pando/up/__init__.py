"""`pando up`: runs a whole fleet on this machine; restarts its processes and ends them together.

Read in this order:
    command.py         the command: serves until a signal ends it
    settings.py        its settings, with the default model; those of workers and router are in
                       their own classes
    models.py          the models that are known by name: smollm2 and tiny
    plan.py            the commands of the fleet's parts
    download.py        models and adapters of the hub, before the fleet starts
    free_port.py       a port that nobody uses
    fleet.py           starts, watches and ends the parts
    part.py            restarts a command that was ready once
    process.py         one process with its group: output, end, signals
    embedded_redis.py  the embedded Valkey
    session.py         runs work in its own fleet
    signals.py         the signals that end a command
    router_client.py   requests to the router
    relay.py           the parts' log lines
    display.py         the live table, and what to do when it is ready

Imports fleet, router and worker for their settings; `demo` and `sim` import it.
"""
