"""`pando record`: fetches the recordings of a fleet's routers, and switches them.

command.py  the command
cluster.py  the routers of a release on Kubernetes
routers.py  what a router's /recording says, and its files
summary.py  what is in the recording, in words
"""
