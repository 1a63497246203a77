"""The data path's entry: who asks, for what, of which model; then the `driver`.

A request is read and parsed once, here; nothing of an answer is parsed.
"""

import logging

from msgspec.structs import replace

from pando_fleet.http.request_id import request_id_of
from pando_fleet.http.time_limit import time_limit_s
from pando_fleet.traces import Tracing
from pando_router.api_keys.tenant import OPEN
from pando_router.driver import Driver
from pando_router.earlier import Earlier
from pando_router.endpoints import ENDPOINTS
from pando_router.errors import ApiError, ClientDisconnectedError
from pando_router.exchange import Exchange
from pando_router.fleet_view import FleetView
from pando_router.http.incoming import Incoming
from pando_router.listeners.audience import Audience
from pando_router.live import Derived, Live
from pando_router.metrics import Metrics
from pando_router.migration.errors import MigrationError
from pando_router.migration.migrator import Migrator
from pando_router.models import Models
from pando_router.reception import Reception
from pando_router.relay import break_off
from pando_router.rename import with_model
from pando_router.route import resolve
from pando_router.steering import Steerer
from pando_router.tracing import RequestTrace

logger = logging.getLogger("pando.router")

CLIENT_CLOSED_REQUEST = 499  # nginx's status for a client that left; only in logs and metrics


class Proxy:
    """Handler of the paths in ENDPOINTS."""

    def __init__(
        self,
        live: Live,
        view: FleetView,
        reception: Reception,
        earlier: Earlier,
        migrator: Migrator,
        driver: Driver,
        audience: Audience,
        tracing: Tracing | None,
        metrics: Metrics,
    ) -> None:
        self._live = live
        self._steer = Derived(live, Steerer)
        self._view = view
        self._reception = reception
        self._earlier = earlier
        self._migrator = migrator
        self._driver = driver
        self._audience = audience
        self._tracing = tracing
        self._metrics = metrics

    async def __call__(self, incoming: Incoming) -> None:
        headers = incoming.headers
        endpoint = ENDPOINTS[incoming.path]
        exchange = Exchange(incoming, endpoint, request_id_of(headers))
        if self._tracing is not None:
            exchange.trace = RequestTrace(
                self._tracing, incoming.path, headers, exchange.request_id
            )
        self._audience.follow(exchange)
        try:
            self._reception.admit(incoming.method)
            exchange.tenant = tenant = self._reception.tenant(headers)
            exchange.limit_s = time_limit_s(headers)
            with self._reception.lifecycle:
                body = await self._reception.body(incoming)
                steering = self._steer()(headers, admin=tenant.admin)
                models = Models(self._view.fleet, self._live.settings.aliases, tenant)
                request = endpoint.parse(body)
                prompt = resolve(request, models, incoming.path, steering, tenant)
                exchange.plan = self._migrator.plan(endpoint.migration, request)
                if request.earlier is not None:
                    home = await self._earlier.at_home(request, tenant, prompt.targets)
                    prompt = replace(prompt, targets=home)
                if prompt.rename is not None:
                    body = with_model(body, prompt.rename)
                self._audience.follow_prompt(exchange, prompt, body)
                if tenant is not OPEN:
                    await self._reception.charge(exchange, prompt)
                await self._driver.serve(exchange, prompt, body)
        except MigrationError as error:
            self._migrator.failed(error, exchange.request_id)
            break_off(exchange, str(error))
        except ApiError as error:
            if exchange.stream is not None:
                self._migrator.no_replica(error, exchange.request_id)
                break_off(exchange, error.message)
            else:
                exchange.refused(error.status)
                await incoming.send(*endpoint.errors.answer(error, exchange.request_id))
        except ClientDisconnectedError:
            exchange.refused(CLIENT_CLOSED_REQUEST)
            self._metrics.disconnects.inc()
        except Exception:
            exchange.refused(500)
            extra = {"request_id": exchange.request_id, "path": incoming.path}
            logger.exception("a request failed", extra=extra)
            if not incoming.started:  # else the server cuts what is left unfinished
                internal = ApiError(500, "internal error", kind="server_error")
                await incoming.send(*endpoint.errors.answer(internal, exchange.request_id))
        finally:
            exchange.close()
