"""A real API server with its etcd, without controllers and nodes.

The programs, `etcd` and `kube-apiserver`, are in the folder that KUBEBUILDER_ASSETS names, as for
controller-runtime's envtest. Tests simulate the other parts of a cluster that they need.
"""

import json
import os
import secrets
import ssl
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import trustme
import yaml

from tests.ports import free_port
from tests.waiting import PATIENCE_S

ADMIN = "system:masters"


def assets() -> Path | None:
    """The folder with both programs; None if there is none."""
    folder = Path(os.environ.get("KUBEBUILDER_ASSETS", "/nonexistent"))
    programs = (folder / "etcd", folder / "kube-apiserver")
    return folder if all(os.access(program, os.X_OK) for program in programs) else None


class ApiServer:
    """Its users are `admin`, with all permissions, and `users`, with those that RBAC grants."""

    def __init__(self, programs: Path, *users: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="pando-api-")
        self.folder = Path(self._folder.name)
        self.tokens = {name: secrets.token_hex(16) for name in ("admin", *users)}
        self.port, self.etcd_port, peer = (free_port() for _ in range(3))
        self.url = f"https://127.0.0.1:{self.port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._certificates()
        self._start("etcd", self._etcd(programs, peer))
        self._start("kube-apiserver", self._api_server(programs))

    def wait(self) -> None:
        """Wait until it answers. Fails with the end of its log."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            if any(process.poll() is not None for process in self._processes):
                break
            try:
                self.call("GET", "/api/v1/namespaces/default")
                return
            except OSError:  # refused, or answered with an error
                time.sleep(0.1)
        logs = "\n".join(log.read_text()[-2000:] for log in self.folder.glob("*.log"))
        raise AssertionError(f"the API server did not start:\n{logs}")

    def close(self) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in reversed(self._processes):
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._folder.cleanup()

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        user: str = "admin",
        content_type: str = "application/json",
    ) -> Any:
        """A call without the operator's client. Raises OSError with the answer."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self.tokens[user]}",
                "Content-Type": content_type,
            },
        )
        context = ssl.create_default_context(cafile=str(self.folder / "ca.crt"))
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise OSError(f"{method} {path}: {error} {error.read().decode()}") from error

    def kubeconfig(self, user: str = "admin", server: str = "") -> Path:
        """A file for kubectl and clients; `server` overrides the address, for example by a
        proxy's."""
        path = self.folder / f"{user}-{secrets.token_hex(4)}.kubeconfig"
        cluster = {
            "server": server or self.url,
            "certificate-authority": str(self.folder / "ca.crt"),
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": user, "user": {"token": self.tokens[user]}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": user}}],
            "current-context": "test",
        }
        path.write_text(yaml.safe_dump(config))
        return path

    def compact(self) -> None:
        """Makes etcd forget all versions but the current one, so older watches are answered 410."""
        revision = self._etcd_call("range", {"key": "AA=="})["header"]["revision"]
        self._etcd_call("compaction", {"revision": revision})

    def _etcd_call(self, what: str, body: dict[str, str]) -> Any:
        url = f"http://127.0.0.1:{self.etcd_port}/v3/kv/{what}"
        data = json.dumps(body).encode()
        with urllib.request.urlopen(
            urllib.request.Request(url, data), timeout=PATIENCE_S
        ) as answer:
            return json.load(answer)

    def _certificates(self) -> None:
        authority = trustme.CA()
        authority.cert_pem.write_to_path(self.folder / "ca.crt")
        own = authority.issue_cert("127.0.0.1", "localhost", "kubernetes")
        own.private_key_pem.write_to_path(self.folder / "server.key")
        chain = b"".join(part.bytes() for part in own.cert_chain_pems)
        (self.folder / "server.crt").write_bytes(chain)
        rows = [
            f'{token},{name},{name},"{ADMIN}"' if name == "admin" else f"{token},{name},{name}"
            for name, token in self.tokens.items()
        ]
        (self.folder / "tokens.csv").write_text("\n".join(rows) + "\n")

    def _etcd(self, programs: Path, peer: int) -> list[str]:
        here, own = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{peer}"
        return [
            str(programs / "etcd"),
            f"--data-dir={self.folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={here}",
            f"--advertise-client-urls={here}",
            f"--listen-peer-urls={own}",
            f"--initial-advertise-peer-urls={own}",
            f"--initial-cluster=default={own}",
        ]

    def _api_server(self, programs: Path) -> list[str]:
        folder = self.folder
        return [
            str(programs / "kube-apiserver"),
            f"--etcd-servers=http://127.0.0.1:{self.etcd_port}",
            f"--secure-port={self.port}",
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            f"--tls-cert-file={folder / 'server.crt'}",
            f"--tls-private-key-file={folder / 'server.key'}",
            f"--token-auth-file={folder / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            f"--service-account-key-file={folder / 'server.key'}",
            f"--service-account-signing-key-file={folder / 'server.key'}",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/16",
            # Serve watches of leases from etcd, so that `compact` makes them expire.
            "--watch-cache-sizes=leases.coordination.k8s.io#0",
            # No controller here creates service accounts for pods.
            "--disable-admission-plugins=ServiceAccount",
        ]

    def _start(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                command,
                env={**os.environ, "GOGC": "400"},  # collect garbage seldom: memory is cheaper here
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )
        self._processes.append(process)
