"""What goes wrong on a node: a privileged pod does it there, for a bounded time."""

from dataclasses import dataclass

from tests.cluster.kube import Cluster, Object, wait_until

PODS = "/api/v1/namespaces/{namespace}/pods"
NAME = "saboteur"
PORT = 8000

FIND = """
import os, pathlib, signal, sys, time

def processes(wanted):
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdecimal() and int(folder.name) != os.getpid():
            try:
                if wanted(folder):
                    yield int(folder.name)
            except OSError:
                pass  # it has just ended

def with_variable(text):
    return lambda folder: text.encode() in (folder / "environ").read_bytes().split(b"\\0")
"""

DEAD_NODE = (
    FIND
    + """
from http.server import BaseHTTPRequestHandler, HTTPServer

class Go(BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(204)
        self.end_headers()

pool, seconds, port = sys.argv[1:]
with HTTPServer(("", int(port)), Go) as server:
    server.handle_request()
kubelets = list(processes(lambda folder: (folder / "comm").read_text().strip() == "kubelet"))
for pid in kubelets:
    os.kill(pid, signal.SIGSTOP)
try:
    for pid in processes(with_variable(f"PANDO_WORKER_POOL={pool}")):
        os.kill(pid, signal.SIGKILL)
    time.sleep(float(seconds))
finally:
    for pid in kubelets:
        os.kill(pid, signal.SIGCONT)
"""
)

CUT_OFF = (
    FIND
    + """
import ctypes, fcntl, socket, struct

NEW_NETWORK, ADD_ROUTE, REJECTED_HOST = 0x40000000, 0x890B, 0x1 | 0x4 | 0x200
replica, *addresses = sys.argv[1:]
pid = next(processes(with_variable(f"PANDO_WORKER_REPLICA={replica}")))
libc = ctypes.CDLL(None, use_errno=True)
with open(f"/proc/{pid}/ns/net") as space:
    if libc.setns(space.fileno(), NEW_NETWORK):
        raise OSError(ctypes.get_errno(), "setns")
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
    for address in addresses:
        to = struct.pack("=HH4s8x", socket.AF_INET, 0, socket.inet_aton(address))
        # struct rtentry of linux/route.h on 64 bits
        route = struct.pack("@L16s16s16sHh4xL56x", 0, to, bytes(16), bytes(16), REJECTED_HOST, 0, 0)
        fcntl.ioctl(control, ADD_ROUTE, route)
"""
)


@dataclass(slots=True)
class Node:
    """The node of a cluster whose tests use one, and which allows privileged pods."""

    cluster: Cluster
    image: str  # has Python

    def dies(self, pool: str, seconds: float) -> None:
        """Stop the kubelet for so long, and kill the workers of the pool.

        The pod waits for a request before that: a kubelet that it stops at once may not have said
        yet that it runs.
        """
        self._run(DEAD_NODE, pool, str(seconds), str(PORT))
        self._until("Running")
        wait_until("it begins", self._go, 60)

    def _go(self) -> bool:
        self.cluster.through_pod(NAME, PORT, "POST", "/")
        return True

    def cut_off(self, replica: str, addresses: list[str]) -> None:
        """Let no packet of a worker reach these addresses any more."""
        self._run(CUT_OFF, replica, *addresses)
        self._until("Succeeded")

    def mend(self) -> None:
        """Wait until what was begun has ended."""
        if self.cluster.find(f"{PODS}/{NAME}"):
            self._until("Succeeded")
            self.cluster.delete_pod(NAME)
            wait_until("it is gone", lambda: not self.cluster.find(f"{PODS}/{NAME}"), 240)

    def _until(self, phase: str) -> None:
        def reached() -> bool:
            now = self.cluster.get(f"{PODS}/{NAME}")["status"].get("phase")
            assert now != "Failed", self.cluster.logs(NAME)
            return bool(now == phase)

        wait_until(f"it is {phase}", reached, 240)

    def _run(self, script: str, *arguments: str) -> None:
        container: Object = {
            "name": NAME,
            "image": self.image,
            "imagePullPolicy": "IfNotPresent",
            "command": ["python", "-c", script, *arguments],
            "securityContext": {"privileged": True, "runAsUser": 0, "runAsNonRoot": False},
        }
        spec: Object = {"hostPID": True, "restartPolicy": "Never", "containers": [container]}
        spec |= {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False}
        self.cluster.create(PODS, {"metadata": {"name": NAME}, "spec": spec})
