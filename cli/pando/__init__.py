"""The `pando` command, and what only a command needs.

Read in this order:
    main.py      the command; each subcommand imports its component when it runs
    settings/    from a settings class to flags, variables, the YAML file
    up/          `pando up`: a fleet on this machine
    demo/        `pando demo`: two policies side by side
    sim/         `pando sim`: runs of the simulator
    pools/       `pando pools`: the WorkerPools of a cluster
    keys.py      `pando keys`: new API keys
    logs.py      logging for every process
    redact.py    keeps passwords out of whatever is shown
    __main__.py  `python -m pando`

May import every part; no part imports it.
"""
