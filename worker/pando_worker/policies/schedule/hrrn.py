"""`hrrn`: the highest response ratio first, 1 + waited / seconds of the request's own prefill
(Brinch Hansen, 1971).

A short prompt, or one that is mostly cached, goes before a long one, until that has waited as many
times its own length. The rate of prefill cancels out: all prompts are computed at the same.
"""

from pando_worker.policies.schedule.order import Clock, MatchesView, Order, ReqT, SchedulePolicy


def _by_response_ratio(matches: MatchesView[ReqT], clock: Clock) -> Order[ReqT]:
    # Imported when a scheduler needs it: it takes numpy, which the settings do without.
    from pando_worker.policies.schedule.response_ratios import ByResponseRatio

    return ByResponseRatio(matches, clock)


HRRN = SchedulePolicy(
    name="hrrn",
    help="the one with the highest response ratio, 1 + waited / seconds of its prefill",
    make=_by_response_ratio,
)
