"""The rules that there are, by name."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pando_sim.fleet.interfaces import RouterContext, Rule, RuleFactory
from pando_sim.rules import dynamo, llm_d, pando, production_stack, smg, vllm
from pando_sim.spec import FleetSpec


@dataclass(frozen=True, slots=True)
class KnownRule:
    make: Callable[[FleetSpec], RuleFactory]
    whose: str
    what: str  # it chooses, in a few words

    def __call__(self, spec: FleetSpec) -> RuleFactory:
        return self.make(spec)


def _own(policy: str, what: str) -> KnownRule:
    return KnownRule(lambda spec: pando.factory(policy, spec), "Pando", what)


def _peer(make: Callable[[RouterContext, FleetSpec], Rule], whose: str, what: str) -> KnownRule:
    return KnownRule(lambda spec: lambda context: make(context, spec), whose, what)


RULES: Mapping[str, KnownRule] = {
    "cache_aware": _own("cache_aware", "soonest first token, by the trees and leases in Redis"),
    "round_robin": _own("round_robin", "one after the other"),
    "random": _own("random", "any"),
    "power_of_two": _own("power_of_two", "the less loaded of two drawn at random"),
    "least_loaded": _own("least_loaded", "fewest requests"),
    "prefix_hash": _own("prefix_hash", "by the prompt's start, with bounded loads"),
    "session": _own("session", "by the session; without one as cache_aware"),
    "smg": _peer(
        lambda context, spec: smg.rule(context),
        "SMG, sglang-router: cache_aware",
        "the first that got the longest beginning; fewest requests if that is short or load uneven",
    ),
    "llm_d": _peer(
        lambda context, spec: llm_d.rule(context, spec.worker.page_size),
        "llm-d, Gateway API inference extension",
        "best sum of queue, KV use and prefix scores, weighted 2, 2 and 3",
    ),
    "dynamo": _peer(
        lambda context, spec: dynamo.KvRouter(context),
        "NVIDIA Dynamo: KV router",
        "fewest blocks to prefill and to decode together",
    ),
    "production_stack": _peer(
        lambda context, spec: production_stack.rule(context),
        "vLLM production-stack: prefixaware",
        "any of those that got the longest beginning, whatever their load",
    ),
    "vllm": _peer(
        lambda context, spec: vllm.rule(context, spec.router.routers),
        "vLLM: internal data-parallel balancing",
        "least of 4 times waiting plus running requests",
    ),
}
