"""What tenants are charged for: counted at a request's end, and settled with their rate limits."""

from pando_router.exchange.exchange import Exchange, Listener
from pando_router.telemetry.tenant_metrics import TenantMetrics
from pando_router.tenants.settlements import Settlements


class Charging(Listener):
    """What a request used is counted; what it had reserved beyond that is given back, all of it
    where no replica did anything for it.

    Where the client left before the answer, or the replica never began it, the prompt costs what
    it was estimated at: else whoever always leaves would have a replica for nothing.
    """

    def __init__(self, metrics: TenantMetrics, settlements: Settlements) -> None:
        self._metrics = metrics
        self._settlements = settlements

    def ended(self, exchange: Exchange) -> None:
        charge, tail, tenant = exchange.charge, exchange.tail, exchange.tenant
        if charge is None or tail is None:
            return
        prompt = output = 0
        if exchange.has_answer or exchange.is_at_work:
            report = exchange.report
            prompt = charge.prompt_tokens if report is None else report.prompt_tokens
            if exchange.has_answer:
                usage, output = tail.usage(), tail.events
                if usage is not None:
                    prompt = prompt if usage.prompt is None else usage.prompt
                    output = output if usage.output is None else usage.output
            counts = self._metrics.of(tenant.name)
            counts.prompt_tokens.inc(prompt)
            counts.output_tokens.inc(output)
        if charge.reserved is not None and (missing := prompt + output - charge.reserved):
            self._settlements.add(tenant, missing)
