"""Which streams may go on at another replica, decided from the request before it is sent."""

from dataclasses import dataclass

from pando_router.configuration.settings import RouterSettings
from pando_router.migration.form import Form
from pando_router.requests.request import Request


@dataclass(frozen=True, slots=True)
class Plan:
    form: Form
    refusal: str = ""  # why it cannot go on once there is text of it; empty where it can
    scored: bool = False  # log-probabilities are asked for


def plan(settings: RouterSettings, form: Form | None, request: Request) -> Plan | None:
    """None for what just passes through."""
    if settings.migrate == "off" or not request.stream or form is None:
        return None
    if request.n != 1:
        return Plan(form, "it has several choices")
    if settings.migrate == "deterministic" and not request.deterministic:
        return Plan(form, "it is neither greedy nor seeded")
    return Plan(form, scored=request.scored)
