"""Fetches images over HTTP: from hosts that the operator allowed, and from public addresses only.

A client chooses the URL, so a worker must not become its way into the cluster. The name is resolved
once, every address that it has must be public, and the connection goes to one of exactly these: a
name that resolves differently the second time (DNS rebinding) gains nothing. A redirect is a new
URL, with the same checks. Blocks, so it runs in a thread.
"""

import http.client
import io
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urljoin, urlsplit

from pando_worker.vision.errors import ImageError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

MAX_REDIRECTS = 3
_REDIRECTS = (301, 302, 303, 307, 308)
_CHUNK = 64 * 1024
_PORTS = {"http": 80, "https": 443}
_IETF = ipaddress.ip_network("192.0.0.0/24")  # of which Python calls some addresses global
_NAT64 = ipaddress.ip_network("64:ff9b::/96")  # IPv6 addresses that stand for IPv4 ones
_GLOBAL = ipaddress.ip_network("2000::/3")  # all IPv6 addresses of hosts elsewhere (RFC 4291, 2.4)


def resolve(host: str, port: int) -> list[str]:
    """All addresses of a name, as text. Raises OSError if it has none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def is_public(address: str) -> bool:
    """Whether an IP address is neither private, link-local, loopback nor otherwise special, and
    does not stand for an IPv4 address that is."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:  # with a zone, such as fe80::1%eth0
        return False
    if isinstance(ip, ipaddress.IPv4Address):
        return ip.is_global and not ip.is_multicast and ip not in _IETF
    if ip.ipv4_mapped or ip in _NAT64:
        return is_public(str(ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)))
    inner = ip.sixtofour or (ip.teredo and ip.teredo[1])
    return ip in _GLOBAL and ip.is_global and (not inner or is_public(str(inner)))


@dataclass(frozen=True)
class Fetcher:
    """
    Attributes:
        hosts: allowed hosts, in lower case; `host:port` for a port other than the scheme's own
        max_bytes: of an image
        timeout_s: of a fetch with all its redirects
        resolve, connect: the network; `connect` gets an address with its port, and seconds
    """

    hosts: frozenset[str]
    max_bytes: int
    timeout_s: float = 10.0
    resolve: Callable[[str, int], Sequence[str]] = resolve
    connect: Callable[[tuple[str, int], float], socket.socket] = socket.create_connection
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)

    def fetch(self, url: str, cancelled: threading.Event) -> bytes:
        """
        Raises:
            ImageError: the URL is not allowed, or does not lead to an image in time.
        """
        deadline = time.monotonic() + self.timeout_s
        try:
            for _ in range(MAX_REDIRECTS + 1):
                answer = self._get(url, deadline, cancelled)
                if isinstance(answer, bytes):
                    return answer
                url = answer
        except TimeoutError as error:
            raise ImageError(f"did not arrive within {self.timeout_s:g} s") from error
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise ImageError(f"cannot be fetched: {error}") from error
        raise ImageError(f"redirects more than {MAX_REDIRECTS} times")

    def _get(self, url: str, deadline: float, cancelled: threading.Event) -> bytes | str:
        """The bytes behind a URL, or the URL that it redirects to."""
        parts = self._allowed(url)
        host, port = str(parts.hostname), parts.port or _PORTS[parts.scheme]
        connection = http.client.HTTPConnection(host, port)
        with self._connected(parts.scheme, host, port, deadline) as sock:
            connection.sock = _TimedSocket(sock, deadline, cancelled)
            target = parts._replace(scheme="", netloc="", fragment="").geturl() or "/"
            connection.request("GET", target, headers={"accept": "image/*"})
            answer = connection.getresponse()
            if answer.status in _REDIRECTS and (location := answer.getheader("location")):
                return urljoin(url, location)
            if answer.status != 200:
                raise ImageError(f"cannot be fetched: its host answers {answer.status}")
            return self._body(answer)

    def _allowed(self, url: str) -> SplitResult:
        parts = urlsplit(url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ImageError("must be a data:, http: or https: URL")
        if parts.username is not None or parts.password is not None:
            raise ImageError("must not have a user name or password in its URL")
        host = parts.hostname.lower()
        port = parts.port or _PORTS[parts.scheme]
        allowed = f"{host}:{port}" if port != _PORTS[parts.scheme] else host
        if allowed not in self.hosts:
            raise ImageError(
                f"is on {allowed[:100]!r}, from which this worker does not fetch; send the image as"
                " a data: URL"
            )
        return parts

    def _connected(self, scheme: str, host: str, port: int, deadline: float) -> socket.socket:
        addresses = self.resolve(host, port)
        if private := [address for address in addresses if not is_public(address)]:
            raise ImageError(
                f"is on {host!r}, which has the address {private[0]}: not a public one"
            )
        sock = self.connect((addresses[0], port), _left(deadline))
        if scheme == "http":
            return sock
        try:
            sock.settimeout(_left(deadline))
            return self.tls.wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise

    def _body(self, answer: http.client.HTTPResponse) -> bytes:
        data = bytearray()
        while chunk := answer.read1(_CHUNK):
            data += chunk
            if len(data) > self.max_bytes:
                raise ImageError(f"has more than {self.max_bytes} bytes")
        return bytes(data)


class _TimedReads(io.RawIOBase):
    """What a socket receives. No call outlasts the fetch, whatever a host sends meanwhile: a
    timeout of the socket itself begins anew with each byte."""

    def __init__(self, sock: socket.socket, deadline: float, cancelled: threading.Event) -> None:
        super().__init__()
        self._sock, self._deadline, self._cancelled = sock, deadline, cancelled

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        if self._cancelled.is_set():
            raise ImageError("is not wanted any more")
        self._sock.settimeout(_left(self._deadline))
        return self._sock.recv_into(buffer)


@dataclass(frozen=True)
class _TimedSocket:
    """What `http.client` needs of a socket, which the fetch itself closes."""

    sock: socket.socket
    deadline: float
    cancelled: threading.Event

    def sendall(self, data: bytes) -> None:
        self.sock.settimeout(_left(self.deadline))
        self.sock.sendall(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedReads(self.sock, self.deadline, self.cancelled))

    def close(self) -> None:
        pass  # once the answer's header is read, though its body comes by the same socket


def _left(deadline: float) -> float:
    """Seconds until then. Raises TimeoutError if it has passed."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left
