"""The hot path's connection to Redis: the commands of many callers over one connection per server.

Callers hold a `Wire`; `Line` is the part of it that they need, and `WireScript` runs a Lua script
through it. `connection.py` is one connection, `directory.py` knows which server holds a key.
Everything that is not needed for each request uses redis-py.
"""

from pando_fleet.redis.wire.call import Line
from pando_fleet.redis.wire.script import WireScript
from pando_fleet.redis.wire.wire import Wire

__all__ = ["Line", "Wire", "WireScript"]
