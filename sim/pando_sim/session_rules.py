"""Rules for agents' sessions that a simulation compares: which call runs first in the workers, and
whether routers let no more sessions run than the pool's memory holds.

All are Pando's own settings, so each can be set on a real fleet.
"""

from dataclasses import dataclass

from pando_fleet.choices import by_name


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRule:
    name: str
    help: str
    schedule_policy: str  # of the workers
    bound_sessions: bool = False  # of the routers


SESSION_RULES = by_name(
    SessionRule(name="fcfs", help="workers serve calls as they arrive", schedule_policy="fcfs"),
    SessionRule(
        name="lpm",
        help="the calls first of which most is cached, as by default",
        schedule_policy="lpm",
    ),
    SessionRule(
        name="bound-lpm",
        help="the same, and sessions wait while others fill the memory (bound_sessions)",
        schedule_policy="lpm",
        bound_sessions=True,
    ),
    SessionRule(
        name="bound-hrrn",
        help="with that bound, the calls first that have waited longest for what they compute",
        schedule_policy="hrrn",
        bound_sessions=True,
    ),
)
