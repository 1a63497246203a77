"""Records a router's requests for replay in the simulator: no text, and no names of tenants or
users.

    form.py          what is in a file: a `Header`, then a `Record` for each request that has ended,
                     and at times a `FleetState`
    recording.py     a router's recording as a whole
    recorder.py      observes requests, makes lines of some dozens, writes them in a thread
    disguise.py      hides keys and names behind a secret
    entry.py         makes a request's record
    fleet_states.py  makes the lines about the fleet
    switch.py        on and off, for all routers
    files.py         the files, bounded in bytes and days
    folder.py        what is in the folder, also from other routers
    routes.py        /recording: the switch, and the files for `pando record`
"""
