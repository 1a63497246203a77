"""Which listeners a request has."""

from pando_router.earlier import Earlier, Remembering
from pando_router.exchange import Exchange
from pando_router.listeners.access_log import AccessLog, RequestLog
from pando_router.listeners.metrics import RequestMetrics
from pando_router.listeners.traced import Traced
from pando_router.metrics import Metrics
from pando_router.recent import Recent, Remembered
from pando_router.recording.recorder import Recorder
from pando_router.route import Prompt
from pando_router.upstreams.learning import Observation
from pando_router.upstreams.upstreams import Upstreams
from pando_router.warming.warming import Warming, WarmSource


class Audience:
    def __init__(
        self,
        metrics: Metrics,
        access_log: AccessLog,
        recorder: Recorder | None,
        recent: Recent,
        earlier: Earlier,
        warming: Warming,
        upstreams: Upstreams,
    ) -> None:
        self._metrics = metrics
        self._access_log = access_log
        self._recorder = recorder
        self._recent = recent
        self._earlier = earlier
        self._warming = warming
        self._upstreams = upstreams

    def follow(self, exchange: Exchange) -> None:
        """From the request's arrival on."""
        exchange.listeners.append(RequestMetrics(exchange, self._metrics))
        exchange.listeners.append(RequestLog(exchange, self._access_log))
        if exchange.trace is not None:
            exchange.listeners.append(Traced(exchange, exchange.trace))

    def follow_prompt(self, exchange: Exchange, prompt: Prompt, body: bytes) -> None:
        """From the moment on at which is known what is asked for, and of whom."""
        listeners = exchange.listeners
        if self._recorder is not None and prompt.request.computes:
            listeners.append(self._recorder.begin(exchange, prompt))
        if self._recent.keeps_any:
            listeners.append(Remembered(self._recent, exchange, prompt))
        if exchange.endpoint.answer_name is not None:
            listeners.append(Remembering(self._earlier, exchange.endpoint.answer_name, prompt))
        if exchange.endpoint.replay is not None and prompt.request.earlier is None:
            path = exchange.incoming.path
            listeners.append(WarmSource(self._warming, path, body, prompt))
        if self._upstreams.any_watched:
            listeners.append(Observation(self._upstreams.learner, exchange, prompt))
