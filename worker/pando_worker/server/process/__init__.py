"""The life of the HTTP process, and what it says of itself.

Read in this order:
    lifecycle.py          serve, notice signals and the scheduler's end, drain, leave
    scheduler_process.py  starts the scheduler's process
    socket_folder.py      the private folder of its sockets
    heartbeat.py          tells the fleet how this worker is
    watchdog.py           judges the engine's silence
    departure.py          how long a worker that ends stays for its cache

Imports the application; only `pando_worker.serve` imports it.
"""
