"""The settings file is read anew while the router runs, see `reloader` and `live`."""
