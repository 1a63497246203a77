"""Requests of LoRA adapters in a simulated fleet: loads cost time, slots are few."""

from collections import Counter
from dataclasses import replace

import pytest

from pando_sim.adapters import of_adapter
from pando_sim.fleet.routing.context import PolicyFactory
from pando_sim.policies import POLICIES
from pando_sim.records import Run
from pando_sim.request import Request
from pando_sim.spec import AdapterSpec, FleetSpec
from pando_sim.traces.adapters import Popularity, with_adapters
from tests.sim.fleet.world import SPEC, by_number, conversations, request, run, with_worker

LOAD_S, READ_S = 0.25, 1.5
SIX = Popularity(adapters=6, seed=1)
ADAPTERS = AdapterSpec(names=SIX.names, load_s=LOAD_S, read_s=READ_S)


def spec_of(slots: int, replicas: int = 1, adapters: AdapterSpec = ADAPTERS) -> FleetSpec:
    worker = with_worker(served_adapters=replace(adapters, slots=slots))
    return replace(worker, replicas=replicas)


def needing(adapter: int, number: int, at_s: float, *blocks: int, output: int = 20) -> Request:
    name = f"adapter-{adapter}" if adapter else ""
    return replace(request(number, at_s, *blocks, output=output), adapter=name)


def loads(found: Run) -> int:
    return found.samples[-1].adapter_loads


def policy(name: str, spec: FleetSpec) -> PolicyFactory:
    return POLICIES[name].factory(spec)


def test_the_first_request_of_an_adapter_waits_for_its_load_and_the_next_does_not() -> None:
    base, first, second = by_number(
        run(
            [needing(n, number, 5.0 * number, 1, 2) for number, n in enumerate((0, 1, 1))],
            spec_of(2),
        )
    )
    assert first.ttft_s == pytest.approx(base.ttft_s + LOAD_S)
    assert second.cached_tokens > 0 == first.cached_tokens, "the base's prefix is another one"
    assert second.ttft_s < base.ttft_s


def test_what_host_memory_does_not_hold_is_read_from_disk_first() -> None:
    spec = spec_of(1, adapters=replace(ADAPTERS, host=2))  # the last two that were read
    turns = (6, 1, 6)  # there; on disk; there, as the last but one
    served = by_number(
        run([needing(n, number, 9.0 * number, number) for number, n in enumerate(turns)], spec)
    )
    waits = [each.ttft_s - served[0].ttft_s + LOAD_S for each in served]
    assert waits == [pytest.approx(LOAD_S), pytest.approx(LOAD_S + READ_S), pytest.approx(LOAD_S)]


def test_others_run_while_an_adapter_is_loaded() -> None:
    requests = [needing(1, 0, 0.0, 1, 2), needing(0, 1, 0.01, 5, 6)]
    adapted, base = by_number(run(requests, spec_of(1)))
    assert base.first_token_s < LOAD_S < adapted.first_token_s


def test_a_request_waits_until_a_slot_is_free() -> None:
    requests = [needing(1, 0, 0.0, 1, output=200), needing(2, 1, 0.5, 2), needing(0, 2, 0.5, 3)]
    long, other, base = by_number(run(requests, spec_of(1)))
    assert base.end_s < long.end_s < other.first_token_s
    assert other.first_token_s == pytest.approx(long.end_s + LOAD_S, abs=0.1)


@pytest.mark.parametrize("name", ["cache_aware", "round_robin", "smg", "llm_d", "llm_d_lora",
                                  "dynamo", "production_stack", "vllm"])  # fmt: skip
def test_every_policy_serves_adapters_and_single_steps_change_nothing(name: str) -> None:
    requests = list(with_adapters(conversations(6, 8, 0.13), SIX))
    spec = spec_of(2, replicas=3)
    found = run(requests, spec, policy=policy(name, spec))
    single = run(requests, spec, policy=policy(name, spec), strides=False)
    assert Counter(each.outcome.value for each in found.served) == {"finished": 48}
    assert repr(found.served) == repr(single.served)
    assert loads(found) == loads(single) >= len({each.adapter for each in requests})


def test_cache_aware_keeps_an_adapter_where_it_is_loaded() -> None:
    turns = [needing(1 + n % 3, n, 2.0 * n, 100 + n) for n in range(24)]
    spec = spec_of(1, replicas=3)
    assert loads(run(turns, spec)) == 3
    rotated = [replace(each, adapter=f"adapter-{1 + each.number // 2 % 3}") for each in turns]
    assert loads(run(rotated, spec, policy=policy("round_robin", spec))) > 10


def test_the_draw_follows_zipf_and_gives_a_conversation_one_adapter() -> None:
    requests = [request(number, 0.0, 1) for number in range(20_000)]
    fifty = Popularity(adapters=50, seed=3)
    counts = Counter(each.adapter for each in with_adapters(requests, fifty))
    harmonic = sum(1 / n for n in range(1, 51))
    for rank in (1, 2, 10):
        share = counts[fifty.names[rank - 1]] / len(requests)
        assert share == pytest.approx(1 / rank / harmonic, rel=0.15)
    talk = [replace(each, session="a") for each in requests[:10]]
    assert len({each.adapter for each in with_adapters(talk, fifty)}) == 1


def test_equal_prompts_of_two_adapters_share_no_key() -> None:
    keys = request(0, 0.0, *range(40)).prompt.keys()
    first, second = of_adapter(keys, "adapter-1"), of_adapter(keys, "adapter-2")
    split = [{each[at : at + 8] for at in range(0, len(each), 8)} for each in (keys, first, second)]
    assert len(set.union(*split)) == sum(map(len, split))
    assert of_adapter(keys[:80], "adapter-1") == first[:80]
    assert of_adapter(keys, "") == keys


def test_a_fleet_without_adapters_is_as_it_was() -> None:
    found = run(conversations(3, 3, 0.2), SPEC)
    assert loads(found) == 0
