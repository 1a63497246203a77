"""The `pando` command and its subcommands.

Read in this order:
    main.py       the command; each subcommand imports its component only when it runs
    settings/     turns a settings class into flags, variables and the YAML file
    up/           `pando up`: a fleet on this machine
    demo/         `pando demo`: two policies side by side
    sim/          `pando sim`: runs of the simulator
    tune/         `pando tune`: a search for a pool's settings
    pools/        `pando pools`: the WorkerPools of a cluster
    keys.py       `pando keys`: new API keys
    logs.py       logging for every process
    log_lines.py  how a record becomes a line
    usage.py      what a wrong command line is answered with
    redact.py     removes passwords from all output
    __main__.py   `python -m pando`

May import every part; no part imports it.
"""
