"""The hot path's way to Redis: many callers' commands over one connection a server.

`Wire` is what callers hold, `Line` what they need of it, and `WireScript` a Lua script run through
it. `connection.py` is one connection, `directory.py` knows which server holds a key. What is not
asked for every request goes through redis-py.
"""

from pando_fleet.redis.wire.call import Line
from pando_fleet.redis.wire.script import WireScript
from pando_fleet.redis.wire.wire import Wire

__all__ = ["Line", "Wire", "WireScript"]
