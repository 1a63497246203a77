"""Performs a claimed mark: sends its prefills, and reports the outcome."""

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
    """Sends prefixes until the mark's budget is spent, and reports the progress in the mark.

    Args:
        mark: a mark that this router has claimed.
        prefills: takes a budget in tokens, yields the tokens that each prefill computed. None if
            this router knows no prompt of the pool.
        spent: called with the tokens of each prefill.

    Returns the outcome and its reason, or None if the mark was withdrawn. Raises FleetError.
    """
    state, reason = MarkState.DONE, ""
    if prefills is None:
        state, reason = MarkState.SKIPPED, "no router has the bytes of this pool's prompts"
    else:
        left = mark.budget_tokens - mark.tokens  # an earlier router may have spent some
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
