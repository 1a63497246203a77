"""The life of the HTTP process, and its reports to the fleet.

Read in this order:
    lifecycle.py          serves, handles signals and the scheduler's end, drains, leaves
    abilities.py          what the model can do, by its files and the settings
    scheduler_process.py  starts the scheduler process
    socket_folder.py      the private folder for its sockets
    heartbeat.py          reports this worker's state to the fleet
    load_bar.py           shows how far a model has loaded
    watchdog.py           detects an engine that is stalled
    garbage.py            how often Python looks for garbage
    departure.py          how long a worker that shuts down waits for the hand-off of its cache

Imports the application; only `pando_worker.serve` imports it.
"""
