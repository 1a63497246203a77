"""A claimed mark, from the first prefill to the word of what became of it."""

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from pando_fleet.records.marks import Mark, Marks, MarkState
from pando_router.warming.prefiller import PrefillError


async def perform(
    marks: Marks,
    mark: Mark,
    prefills: Callable[[int], AsyncGenerator[int, None]] | None,
    spent: Callable[[int], None],
) -> tuple[MarkState, str] | None:
    """Sends prefixes until the mark's budget is spent, and writes down what was done.

    Args:
        mark: claimed.
        prefills: of a budget of tokens; yields those that each prefill took. None where no prompt
            of the pool is known.
        spent: told the tokens of each prefill.

    Returns how it ended and the reason; None where the mark was taken away. Raises FleetError.
    """
    state, reason = MarkState.DONE, ""
    if prefills is None:
        state, reason = MarkState.SKIPPED, "no router has bytes of this pool's prompts"
    else:
        left = mark.budget_tokens - mark.tokens  # a router before this one may have spent some
        try:
            async with aclosing(prefills(left)) as sent:
                async for tokens in sent:
                    left -= tokens
                    spent(tokens)
                    if not await marks.report(mark, tokens=tokens, prefixes=1):
                        return None
                    if left <= 0:
                        break
        except PrefillError as error:
            state, reason = MarkState.SKIPPED, f"prefills failed: {error}"
    await marks.report(mark, state=state, reason=reason)
    return state, reason
