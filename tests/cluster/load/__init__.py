"""The pod that sends the tests' load, controlled through the API server's proxy."""

import base64
import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.kube import Cluster, Object, is_ready, wait_until

NAME = "load"
PORT = 8080
PATIENCE_S = 60  # for one stream on a busy machine
CODE = Path(__file__).with_name("client.py")
PODS = "/api/v1/namespaces/{namespace}/pods"
CONFIG_MAPS = "/api/v1/namespaces/{namespace}/configmaps"


@dataclass(slots=True)
class Answer:
    status: int
    text: str
    headers: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def json(self) -> Any:
        return json.loads(self.text)


@dataclass(slots=True)
class LoadPod:
    """Clients inside the cluster; they use the model `model`."""

    cluster: Cluster
    model: str
    seen: int = 0  # counted streams

    def start(self, url: str, image: str) -> None:
        self.stop()  # left by an earlier session
        self.cluster.create(
            CONFIG_MAPS, {"metadata": {"name": NAME}, "data": {CODE.name: CODE.read_text()}}
        )
        self.cluster.create(PODS, _pod(url, image))
        wait_until(
            "the load pod is ready", lambda: is_ready(self.cluster.get(f"{PODS}/{NAME}")), 60
        )

    def stop(self) -> None:
        self.cluster.delete(f"{PODS}/{NAME}")
        self.cluster.delete(f"{CONFIG_MAPS}/{NAME}")
        # Kubernetes 1.20 may take more than a minute to clean up (kubernetes#97288).
        wait_until("the load pod is gone", lambda: not self.cluster.find(f"{PODS}/{NAME}"), 240)

    def is_there(self) -> bool:
        return self.cluster.find(f"{PODS}/{NAME}") is not None

    def set(self, clients: int, **shape: Any) -> None:
        """Set the number of clients; with 0, clients end after their streams."""
        self._call("POST", "/load", {"clients": clients, "model": self.model} | shape)

    def streams(self, since: int) -> Object:
        told: Object = json.loads(self._call("GET", f"/streams?since={since}"))
        return told

    def more(self, count: int) -> None:
        """Wait until `count` more streams have ended."""
        ended = self.now()["ended"] + count
        wait_until("streams", lambda: self.now()["ended"] >= ended, PATIENCE_S, moving=self.now)

    def begin(self, clients: int, **shape: Any) -> None:
        """Set the number of clients, and wait until each is at the start of a stream."""
        self.set(0)
        self.rest()
        self.set(clients, **shape)
        wait_until("all have begun", lambda: self.now()["begun"] == clients, PATIENCE_S)

    def rest(self) -> None:
        """Wait until no stream is running."""
        wait_until("all have ended", lambda: not self.now()["running"], 2 * PATIENCE_S)

    def now(self) -> Object:
        """The numbers of ended streams, of running ones, and of running ones with an event."""
        return self.streams(2**31)

    def count(self) -> "Counts":
        """Wait until no stream runs; returns counts of streams that ended since the last call."""
        self.rest()
        told = self.streams(self.seen)
        self.seen = told["ended"]
        return Counts.of(told["streams"])

    def chat(self, content: str, headers: dict[str, str] | None = None) -> Answer:
        messages = [{"role": "user", "content": content}]
        body = {"model": self.model, "messages": messages, "max_tokens": 8}
        return self.ask("/v1/chat/completions", body, headers)

    def ask(
        self, path: str, body: object, headers: dict[str, str] | None = None, timeout_s: float = 60
    ) -> Answer:
        asked = {"path": path, "body": body, "headers": headers or {}, "timeout_s": timeout_s}
        return Answer(**json.loads(self._call("POST", "/ask", asked, timeout_s + 30)))

    def ask_form(
        self, path: str, fields: dict[str, str], file: bytes, timeout_s: float = 60
    ) -> Answer:
        """A form with a file."""
        sent = base64.b64encode(file).decode()
        asked = {"path": path, "body": fields, "file": sent, "timeout_s": timeout_s}
        return Answer(**json.loads(self._call("POST", "/ask", asked, timeout_s + 30)))

    def _call(self, method: str, path: str, body: object = None, timeout_s: float = 60) -> bytes:
        return self.cluster.through_pod(NAME, PORT, method, path, body, timeout_s)


@dataclass(slots=True)
class Counts:
    """Counts of streams by outcome."""

    streams: int
    finished: int
    tried_again: int  # streams that needed more than one try
    failed: int
    cut: int
    seconds_to_first: list[float]
    longest_gap_s: float
    errors: Counter[str]

    @classmethod
    def of(cls, streams: list[Object]) -> "Counts":
        outcomes = Counter(stream["outcome"] for stream in streams)
        return cls(
            streams=len(streams),
            finished=outcomes["finished"],
            tried_again=sum(stream["refused"] > 0 for stream in streams),
            failed=outcomes["failed"],
            cut=outcomes["cut"],
            seconds_to_first=sorted(s["first_s"] for s in streams if s["first_s"] is not None),
            longest_gap_s=max((stream["longest_gap_s"] for stream in streams), default=0.0),
            errors=Counter(error for stream in streams for error in stream["errors"]),
        )

    def first_s(self, share: float) -> float:
        """Quantile of the time to the first event."""
        waits = self.seconds_to_first
        return waits[min(len(waits) - 1, int(share * len(waits)))] if waits else float("nan")

    def __str__(self) -> str:
        return (
            f"{self.streams} streams: {self.finished} finished, {self.tried_again} of them tried"
            f" again, {self.failed} failed, {self.cut} cut; first event"
            f" p50 {self.first_s(0.5):.2f} s, p99 {self.first_s(0.99):.2f} s;"
            f" errors: {dict(self.errors.most_common(5))}"
        )


def _pod(url: str, image: str) -> Object:
    return {
        "metadata": {"name": NAME, "labels": {"app": NAME}},
        "spec": {
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": NAME,
                    "image": image,
                    "imagePullPolicy": "IfNotPresent",
                    "command": ["tini", "--", "python", f"/load/{CODE.name}", url],
                    "ports": [{"containerPort": PORT}],
                    "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
                    "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
                    "securityContext": {
                        "allowPrivilegeEscalation": False,
                        "readOnlyRootFilesystem": True,
                        "capabilities": {"drop": ["ALL"]},
                    },
                    "volumeMounts": [{"name": "load", "mountPath": "/load"}],
                }
            ],
            "volumes": [{"name": "load", "configMap": {"name": NAME}}],
        },
    }
