"""Every family of models through scheduler, pools, cache and sampler: the tokens of transformers,
in a pool so small that requests are retracted and start over."""

from pathlib import Path

from pando_worker.runner.model_runner import TorchModelRunner
from pando_worker.runner.threaded import ThreadedRunner
from pando_worker.settings import WorkerSettings
from tests.worker.model.checkpoints import Reference, prompt
from tests.worker.scheduler.world import World

PAGES, PAGE_SIZE = 14, 4


def engine(model: Path, context_length: int | None) -> World:
    settings = WorkerSettings(
        model=str(model),
        page_size=PAGE_SIZE,
        max_total_tokens=PAGES * PAGE_SIZE,
        context_length=context_length,
        threads=1,
        cpu_kernels="off",
    )
    return World(
        pages=PAGES,
        page_size=PAGE_SIZE,
        chunked_prefill_size=8,
        new_token_ratio=0.01,
        watermark=0,
        runner=ThreadedRunner(TorchModelRunner(settings)),
    )


def test_retracted_requests_get_the_tokens_of_transformers(family: Reference) -> None:
    world = engine(family.path, family.context_length)
    prompts = {f"r{index}": prompt(9, seed=index) for index in range(3)}
    for rid, tokens in prompts.items():
        world.send(rid, tokens, max_new_tokens=18)
    world.run()
    world.send("again", [*prompts["r0"], *world.tokens["r0"][:8]], max_new_tokens=4)
    world.run()
    assert world.scheduler.stats().retracted_requests_total > 0
    for rid, tokens in prompts.items():
        assert world.tokens[rid] == family.greedy(tokens, 18)
    assert world.tokens["again"] == family.greedy(prompts["r0"], 18)[8:12]
