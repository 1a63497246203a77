"""`pando up`: a whole fleet on this machine, its processes kept alive and ended together.

Read in this order:
    command.py         from settings to a fleet that serves until a signal ends it
    settings.py        its settings; those of workers and router come from their own variables
    models.py          which models are served by default
    plan.py            the commands of the fleet's parts
    fleet.py           starts the parts, watches them, ends them all
    part.py            a command that is kept running once it was ready
    process.py         one process with its group: output, end, signals
    embedded_redis.py  the Valkey that comes along
    session.py         work in a fleet of its own
    signals.py         the signals that end a command
    router_client.py   what is asked of the router
    display.py         log lines and the live table

Imports fleet, router and worker for their settings; `demo` and `sim` import it.
"""
