"""Shadow policies: compared with the acting one, without side effects."""

from typing import Any

import pytest

from tests.router.world import Replica, RouterClient, completion, serving, until

RATES: dict[str, Any] = {"prefill_tokens_per_s": 1_000.0, "capacity_tokens": 1_000_000}
LONG = "".join(f"{i:07d} " for i in range(512))
TOKENS = len(LONG) // 4


class Counted:
    """The shadow's metrics."""

    def __init__(self, router: RouterClient, acting: str, shadow: str) -> None:
        self._router = router
        self._policies = f'acting="{acting}"', f'shadow="{shadow}"'

    async def requests(self, agrees: str) -> float:
        acting, shadow = self._policies
        labels = f'{{{acting},agrees="{agrees}",pool="default",{shadow}}}'
        return await self._router.metric(f"pando_router_shadow_requests_total{labels}")

    async def all(self, count: int) -> None:
        async def counted() -> bool:
            return await self.requests("true") + await self.requests("false") == count

        await until(counted, f"{count} requests in the shadow")

    async def of(self, what: str, role: str) -> float:
        sample = f'pando_router_shadow_predicted_{what}_total{{pool="default",role="{role}"}}'
        return await self._router.metric(sample)


async def test_shadow_shows_what_another_policy_would_have_cached(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", **RATES),
        Replica(valkey_url, "b", **RATES),
        serving(
            valkey_url,
            policy="round_robin",
            shadow_policy="cache_aware",
            shadow_per_second=1_000,
        ) as router,
    ):
        await router.ready("a", "b")
        counted = Counted(router, "round_robin", "cache_aware")
        for number in range(2):  # a computes it; the next turn is b's, although a has it
            await router.post("/v1/completions", completion(LONG))
            await counted.all(number + 1)
        assert await counted.of("cached_tokens", "acting") == 0
        assert await counted.of("cached_tokens", "shadow") == TOKENS - 1
        # Both compute the first one, and the shadow one token of the second.
        assert await counted.of("seconds", "acting") == pytest.approx(2 * TOKENS / 1_000)
        assert await counted.of("seconds", "shadow") == pytest.approx((TOKENS + 1) / 1_000)
        assert await counted.requests("false") >= 1


@pytest.mark.parametrize("shadow", ["round_robin", "least_loaded", "random", "session"])
async def test_shadow_leaves_no_trace(valkey_url: str, shadow: str) -> None:
    async with (
        Replica(valkey_url, "a", **RATES) as a,
        Replica(valkey_url, "b", **RATES) as b,
        serving(
            valkey_url,
            policy="round_robin",
            shadow_policy=shadow,
            shadow_per_second=1_000,
        ) as router,
    ):
        await router.ready("a", "b")
        counted = Counted(router, "round_robin", shadow)
        order = []
        for number in range(6):
            answer = await router.post("/v1/completions", completion(f"{number}" * 600, user="u"))
            order.append(answer.replica)
            await counted.all(number + 1)
        assert order == ["a", "b"] * 3  # no turn of the acting policy was taken
        assert len(a.received) == len(b.received) == 3

        async def explained(prompt: str) -> dict[str, Any]:
            body = completion(prompt)
            answer = await router.post("/route/explain?path=/v1/completions", body)
            return {c["replica"]: c for c in answer.json["candidates"]}

        for number, home in enumerate(order):  # only where it was placed is a prompt in a tree

            async def is_home(prompt: str = f"{number}" * 600, home: str = home) -> bool:
                found = await explained(prompt)
                return {name: c["matched_chunks"] > 0 for name, c in found.items()} == {
                    name: name == home for name in ("a", "b")
                } and all(c["outstanding"] == 0 for c in found.values())

            await until(is_home, "a trace of the acting policy only, and no lease")


async def test_shadow_looks_at_so_many_requests_a_second(valkey_url: str) -> None:
    async with (
        Replica(valkey_url, "a", **RATES),
        serving(valkey_url, shadow_policy="random", shadow_per_second=0.001) as router,
    ):
        await router.ready("a")
        for number in range(10):
            await router.post("/v1/completions", completion(f"{number}"))
        counted = Counted(router, "cache_aware", "random")
        await counted.all(1)
        assert await counted.requests("true") == 1
