"""Images from URLs: a real HTTP server behind names that resolve as each test says."""

import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import trustme

from pando_worker.vision.errors import ImageError
from pando_worker.vision.fetching import MAX_REDIRECTS, Fetcher, is_public

PUBLIC = "93.184.216.34"
PICTURE = bytes(range(256)) * 400


@dataclass
class Site:
    """A server that the fetcher reaches by any public address."""

    port: int
    requests: list[tuple[str, str]] = field(default_factory=list)  # host, path
    dns: dict[str, list[str]] = field(default_factory=dict)
    dialled: list[str] = field(default_factory=list)

    def fetcher(self, **changes: object) -> Fetcher:
        def resolve(host: str, port: int) -> list[str]:
            if host not in self.dns:
                raise socket.gaierror(f"no address for {host}")
            return self.dns[host]

        def connect(address: tuple[str, int], timeout: float) -> socket.socket:
            self.dialled.append(address[0])
            return socket.create_connection(("127.0.0.1", self.port), timeout)

        values: dict[str, object] = {
            "hosts": frozenset({"pictures.example", "other.example:8080"}),
            "max_bytes": 200_000,
            "timeout_s": 5.0,
            "resolve": resolve,
            "connect": connect,
        }
        return Fetcher(**(values | changes))  # type: ignore[arg-type]

    def fetch(self, url: str, **changes: object) -> bytes:
        return self.fetcher(**changes).fetch(url, threading.Event())


Answer = Callable[[BaseHTTPRequestHandler], None]


def send(
    handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: Mapping[str, str]
) -> None:
    handler.send_response(status)
    for name, value in headers.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def answer(handler: BaseHTTPRequestHandler, silent: threading.Event) -> None:
    path = handler.path
    if path.startswith("/to/"):
        send(handler, 302, b"", {"location": path.removeprefix("/to/")})
    elif path.startswith("/again"):
        send(handler, 302, b"", {"location": path + "x"})
    elif path == "/endless":
        handler.send_response(200)
        handler.end_headers()
        while not silent.is_set():
            handler.wfile.write(PICTURE)
    elif path == "/slow":
        handler.send_response(200)
        handler.send_header("content-length", "10")
        handler.end_headers()
        handler.wfile.write(b"x")
        handler.wfile.flush()
        silent.wait()
    elif path == "/trickle":
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nx: ")
        while not silent.wait(0.02):
            handler.wfile.write(b"x")
    elif path == "/missing":
        send(handler, 404, b"", {})
    else:
        send(handler, 200, PICTURE, {"content-length": str(len(PICTURE))})


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(params=[False])
def site(request: pytest.FixtureRequest, authority: trustme.CA) -> Iterator[Site]:
    silent = threading.Event()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found.requests.append((self.headers["host"], self.path))
            with suppress(BrokenPipeError, ConnectionResetError):
                answer(self, silent)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if request.param:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("pictures.example").configure_cert(context)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    found = Site(server.server_address[1], dns={"pictures.example": [PUBLIC]})
    thread = threading.Thread(
        target=server.serve_forever, args=(0.01,)
    )  # seconds until it sees its end
    thread.start()
    yield found
    silent.set()
    server.shutdown()
    thread.join()
    server.server_close()


def test_an_image_of_an_allowed_host_is_fetched_from_the_address_that_was_checked(
    site: Site,
) -> None:
    assert site.fetch("http://pictures.example/a.png?size=1#part") == PICTURE
    assert site.requests == [("pictures.example", "/a.png?size=1")]
    assert site.dialled == [PUBLIC]


@pytest.mark.parametrize("site", [True], indirect=True)
def test_https_checks_the_name_of_the_host(site: Site, authority: trustme.CA) -> None:
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    assert site.fetch("https://pictures.example/", tls=trusting) == PICTURE
    with pytest.raises(ImageError, match="certificate verify failed"):
        site.fetch("https://pictures.example/")
    site.dns["else.example"] = [PUBLIC]
    with pytest.raises(ImageError, match="certificate verify failed"):
        site.fetch("https://else.example/", hosts=frozenset({"else.example"}), tls=trusting)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("http://elsewhere.example/", "is on 'elsewhere.example', from which this worker does not"),
        ("http://pictures.example:8080/", "is on 'pictures.example:8080'"),
        ("http://other.example/", "is on 'other.example'"),
        ("http://pictures.example@elsewhere.example/", "user name"),
        ("ftp://pictures.example/", "must be a data:, http: or https: URL"),
        ("file:///etc/passwd", "must be a data:, http: or https: URL"),
        ("pictures.example/a.png", "must be a data:, http: or https: URL"),
        ("http://[::1", "cannot be fetched"),
        ("http://pictures.example:99999/", "cannot be fetched"),
        ("http://pictures.example/missing", "its host answers 404"),
        ("http://pictures.example/endless", "has more than 200000 bytes"),
    ],
)
def test_other_urls_are_refused(site: Site, url: str, message: str) -> None:
    with pytest.raises(ImageError, match=message):
        site.fetch(url)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",  # where clouds give out credentials
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::1",
        "fe80::1",
        "fe80::1%eth0",
        "fd00::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",  # NAT64 of 10.0.0.1
        "2002:a00:1::",  # 6to4 of 10.0.0.1
        "64:ff9b:1::a00:1",  # NAT64 within a network (RFC 8215)
        "::a00:1",  # IPv4-compatible
        "::ffff:0:a00:1",  # translated (RFC 2765)
        "fec0::1",  # of a site
        "192.0.0.8",
    ],
)
def test_no_connection_goes_to_an_address_inside(site: Site, address: str) -> None:
    """Nor if only one of a name's addresses is inside."""
    assert not is_public(address)
    for addresses in ([address], [PUBLIC, address]):
        site.dns["pictures.example"] = addresses
        with pytest.raises(ImageError, match="not a public one"):
            site.fetch("http://pictures.example/")
    assert site.dialled == []


@pytest.mark.parametrize(
    "address",
    [PUBLIC, "2606:2800:220:1:248:1893:25c8:1946", "::ffff:93.184.216.34", "64:ff9b::5db8:d822"],
)
def test_public_addresses_are(address: str) -> None:
    assert is_public(address)


def test_a_redirect_is_followed_to_allowed_hosts_and_public_addresses(site: Site) -> None:
    start = "http://pictures.example/to/"
    assert site.fetch(start + "http://pictures.example/b.png") == PICTURE
    assert site.fetch(start + "/c.png") == PICTURE
    with pytest.raises(ImageError, match=r"is on 'elsewhere\.example'"):
        site.fetch(start + "http://elsewhere.example/")
    with pytest.raises(ImageError, match="must be a data:"):
        site.fetch(start + "file:///etc/passwd")
    site.dns["other.example"] = ["10.0.0.1"]
    with pytest.raises(ImageError, match="not a public one"):
        site.fetch(start + "http://other.example:8080/")


def test_redirects_end(site: Site) -> None:
    with pytest.raises(ImageError, match=f"redirects more than {MAX_REDIRECTS} times"):
        site.fetch("http://pictures.example/again")
    assert len(site.requests) == MAX_REDIRECTS + 1


def test_a_host_that_stands_still_is_given_up(site: Site) -> None:
    with pytest.raises(ImageError, match=r"did not arrive within 0\.3 s"):
        site.fetch("http://pictures.example/slow", timeout_s=0.3)


def test_a_host_whose_header_does_not_end_is_given_up(site: Site) -> None:
    """Though it sends a byte of it again and again, without end."""
    with pytest.raises(ImageError, match=r"did not arrive within 0\.5 s"):
        site.fetch("http://pictures.example/trickle", timeout_s=0.5)


def test_a_name_without_an_address_is_refused(site: Site) -> None:
    site.dns.clear()
    with pytest.raises(ImageError, match="no address for"):
        site.fetch("http://pictures.example/")


def test_a_fetch_that_nobody_wants_any_more_ends(site: Site) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(ImageError, match="not wanted"):
        site.fetcher().fetch("http://pictures.example/endless", cancelled)
