"""Decides from a request, before it is sent, whether its stream may migrate."""

from dataclasses import dataclass

from pando_router.configuration.settings import RouterSettings
from pando_router.migration.form import Form
from pando_router.requests.request import Request


@dataclass(frozen=True, slots=True)
class Plan:
    form: Form
    refusal: str = ""  # why it cannot continue once text was sent; empty if it can
    scored: bool = False  # the request asks for log-probabilities


def plan(settings: RouterSettings, form: Form | None, request: Request) -> Plan | None:
    """The plan for a request; None if its answer is relayed without one."""
    if settings.migrate == "off" or not request.stream or form is None:
        return None
    if request.n != 1:
        return Plan(form, "it has several choices")
    if request.scored and not form.continues_scores:
        return Plan(form, "its texts have log-probabilities")
    if settings.migrate == "deterministic" and not request.deterministic:
        return Plan(form, "it is neither greedy nor seeded")
    return Plan(form, scored=request.scored)
