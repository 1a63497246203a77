"""Charges tenants for their requests: counts the use, and settles the rate limits."""

from pando_router.exchange.exchange import Exchange, Listener
from pando_router.telemetry.tenant_metrics import TenantMetrics
from pando_router.tenants.settlements import Settlements


class Charging(Listener):
    """Counts what a request used, and returns the unused part of its reservation: all of it if no
    replica computed anything.

    If the client disconnected before the answer, or the replica never began it, the prompt costs
    its estimate; otherwise a client that always disconnects would use a replica for free.
    """

    def __init__(self, metrics: TenantMetrics, settlements: Settlements) -> None:
        self._metrics = metrics
        self._settlements = settlements

    def ended(self, exchange: Exchange) -> None:
        charge, tail, tenant = exchange.charge, exchange.tail, exchange.tenant
        if charge is None:
            return
        prompt = output = 0
        if exchange.has_answer or exchange.is_at_work:
            report = exchange.report
            prompt = charge.prompt_tokens if report is None else report.prompt_tokens
            if exchange.has_answer and tail is not None:
                usage, output = tail.usage(), tail.events
                if usage is not None:
                    prompt = prompt if usage.prompt is None else usage.prompt
                    output = output if usage.output is None else usage.output
            counts = self._metrics.of(tenant.name)
            counts.prompt_tokens.inc(prompt)
            counts.output_tokens.inc(output)
        if charge.reserved is not None and (missing := prompt + output - charge.reserved):
            self._settlements.add(tenant, missing)
