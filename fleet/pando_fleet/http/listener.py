"""A socket on every address of the machine, of IPv4 and of IPv6: what the host "::" means.

asyncio would listen on IPv6 alone for "::". On a machine without IPv6 the socket is one of IPv4.
"""

import socket

EVERYWHERE = "::"


def bound_everywhere(port: int, *, share_port: bool = False) -> socket.socket:
    """A bound TCP socket that does not listen yet; port 0 picks a free one. Raises OSError.

    Args:
        share_port: lets other processes bind the port, too (SO_REUSEPORT).
    """
    is_dual = socket.has_dualstack_ipv6()
    listener = socket.socket(socket.AF_INET6 if is_dual else socket.AF_INET, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if share_port:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if is_dual:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((EVERYWHERE if is_dual else "0.0.0.0", port))
    except OSError:
        listener.close()
        raise
    return listener
