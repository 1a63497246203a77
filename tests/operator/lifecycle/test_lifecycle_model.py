"""The plan in a model of a cluster where anything may fail at any step."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from pando_operator.lifecycle.actions import Action, Annotate, SetGate
from pando_operator.lifecycle.plan import plan
from pando_operator.lifecycle.pods import PodView
from pando_operator.resource.scaling import Drain, Scaling, Warm
from tests.examples import examples
from tests.operator.lifecycle.cluster_model import Cluster, Pod

SCALING = Scaling(
    drain=Drain(timeout_seconds=40, hand_off_tokens=1000),
    warm=Warm(tokens=1000, timeout_seconds=20),
)


class Fleet(RuleBasedStateMachine):
    @initialize(size=st.integers(0, 4), knows_cost=st.booleans())
    def start(self, size: int, knows_cost: bool) -> None:
        self.cluster = Cluster(size, SCALING, knows_cost=knows_cost)
        self.target = size
        self.worths: dict[str, float] = {}
        self.seen: list[PodView] | None = None  # by a watch that lags; None: current
        self._rounds(8)

    def _rounds(self, count: int) -> None:
        """All parts do their work in turn."""
        for _ in range(count):
            for action in self._plan():
                self._execute(action)
            self.cluster.controllers()
            self.cluster.kubelets()
            self.cluster.load_models(self._unseen())
            self.cluster.pass_time(2.0)

    def _unseen(self) -> set[str]:
        if self.seen is None:
            return set()
        return set(self.cluster.pods) - {view.name for view in self.seen}

    # The operator.

    def _execute(self, action: Action) -> None:
        """The answer to a write of a pod is the pod, which is used at once."""
        self.cluster.execute(action, self.target)
        if self.seen is not None and isinstance(action, Annotate | SetGate):
            written = self.cluster.pods.get(action.pod)
            self.seen = [
                self.cluster.view(written) if written and view.name == action.pod else view
                for view in self.seen
            ]

    def _plan(self) -> list[Action]:
        """Uses pods as a watch has shown them, possibly late, and the current state of Redis."""
        views = self.cluster.views()
        if self.seen is not None:
            requests = {view.name: view.requests for view in views}
            views = [replace(view, requests=requests.get(view.name)) for view in self.seen]
        return plan(
            views,
            list(self.cluster.marks.values()),
            target=self.target,
            replicas=self.cluster.replicas,
            worths=self.worths,
            now=self.cluster.now,
            scaling=SCALING,
        )

    @rule(stops_after=st.integers(0, 6) | st.none())
    def operate(self, stops_after: int | None) -> None:
        """It may end after any action; another one starts from the state that it sees."""
        for action in self._plan()[:stops_after]:
            self._execute(action)

    @rule(count=st.integers(1, 4))
    def all_goes_well_for_a_while(self, count: int) -> None:
        self._rounds(count)

    @rule()
    def watch_falls_behind(self) -> None:
        if self.seen is None:
            self.seen = self.cluster.views()

    @rule()
    def watch_catches_up(self) -> None:
        self.seen = None

    @rule()
    def operate_without_redis(self) -> None:
        size = self.cluster.replicas
        for action in plan(
            self.cluster.views(),
            None,
            target=self.target,
            replicas=size,
            worths={},
            now=self.cluster.now,
            scaling=SCALING,
        ):
            self._execute(action)
        assert self.cluster.replicas >= size

    @rule(size=st.integers(0, 5))
    def want(self, size: int) -> None:
        self.target = size

    @rule(data=st.data())
    def use_caches(self, data: st.DataObject) -> None:
        names = sorted(self.cluster.pods)
        self.worths = {name: data.draw(st.floats(0, 9)) for name in names}

    # Kubernetes, routers and clients.

    @rule()
    def controllers(self) -> None:
        self.cluster.controllers()

    @rule(template=st.sampled_from(["one", "two", "three"]), is_broken=st.booleans())
    def roll(self, template: str, is_broken: bool) -> None:
        """Possibly back to an earlier one. Pods of a broken one never serve."""
        self.cluster.deployment.template = template
        if is_broken:
            self.cluster.broken.add(template)
        else:
            self.cluster.broken.discard(template)

    @rule()
    def kubelets(self) -> None:
        self.cluster.kubelets()

    @rule()
    def load_models(self) -> None:
        self.cluster.load_models(self._unseen())

    @rule()
    def finish_marks(self) -> None:
        self.cluster.finish_marks()

    @precondition(lambda self: self.cluster.takers())
    @rule(data=st.data(), requests=st.integers(1, 3))
    def place(self, data: st.DataObject, requests: int) -> None:
        data.draw(st.sampled_from(self.cluster.takers())).requests += requests

    @rule(data=st.data())
    def end_requests(self, data: st.DataObject) -> None:
        for pod in self._some(data, lambda pod: pod.requests > 0):
            self.cluster.end_request(pod)

    @rule(seconds=st.sampled_from([1.0, 5.0, 25.0, 130.0]))
    def pass_time(self, seconds: float) -> None:
        self.cluster.pass_time(seconds)

    # What fails.

    @rule()
    def redis_forgets(self) -> None:
        self.cluster.marks.clear()

    @rule(data=st.data())
    def containers_crash(self, data: st.DataObject) -> None:
        for pod in self._some(data, lambda pod: pod.containers_ready):
            self.cluster.crash(pod)

    @rule(data=st.data())
    def somebody_deletes(self, data: st.DataObject) -> None:
        for pod in self._some(data, lambda pod: not pod.deleting):
            pod.deleting = True

    def _some(self, data: st.DataObject, of: Callable[[Pod], bool]) -> list[Pod]:
        pods = [pod for pod in self.cluster.pods.values() if of(pod)]
        return [data.draw(st.sampled_from(pods))] if pods else []

    @invariant()
    def nothing_went_wrong(self) -> None:
        if hasattr(self, "cluster"):
            assert not self.cluster.wrong, self.cluster.wrong

    def teardown(self) -> None:
        """Without further failures the fleet reaches its size, even if a rollout cannot end; when
        it can, all replicas serve and nothing is left behind."""
        if not hasattr(self, "cluster"):
            return
        cluster = self.cluster
        self.seen = None
        if cluster.broken:
            self._leave_in_peace(40)
            assert not cluster.wrong, cluster.wrong
            assert cluster.replicas == self.target
        cluster.broken.clear()
        self._leave_in_peace(60)
        assert not cluster.wrong, cluster.wrong
        assert cluster.replicas == self.target
        assert len(cluster.pods) == self.target
        for pod in cluster.pods.values():
            assert pod.is_ready, pod
            assert not pod.annotations, pod
            assert not cluster.withheld(pod), cluster.marks
        marks = [m for m in cluster.marks.values() if not m.is_over and m.replica in cluster.pods]
        assert not marks
        assert not self._plan()

    def _leave_in_peace(self, rounds: int) -> None:
        for _ in range(rounds):
            for pod in self.cluster.pods.values():
                pod.requests = 0
            self._rounds(1)
            self.cluster.pass_time(3.0)


TestFleet = Fleet.TestCase
TestFleet.settings = settings(max_examples=examples(100), stateful_step_count=40)
