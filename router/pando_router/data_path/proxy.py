"""The data path's entry point: reads a request, and hands it to the `driver`.

A request is parsed once, here. Answers are not parsed.
"""

import logging

from pando_fleet.http.request_id import request_id_of
from pando_fleet.http.server.incoming import Incoming
from pando_fleet.traces import Tracing
from pando_router.api_keys.tenant import OPEN
from pando_router.data_path.driver import Driver
from pando_router.data_path.reception import Reception
from pando_router.data_path.relay import break_off
from pando_router.endpoints import ENDPOINTS
from pando_router.errors import CLIENT_CLOSED_REQUEST, ApiError, ClientDisconnectedError
from pando_router.exchange.exchange import Audience, Exchange
from pando_router.migration.errors import MigrationError
from pando_router.migration.migrator import Migrator
from pando_router.process.lifecycle import Lifecycle
from pando_router.telemetry.metrics import Metrics
from pando_router.telemetry.tracing import RequestTrace

logger = logging.getLogger("pando.router")


class Proxy:
    """Handles the paths in ENDPOINTS."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        reception: Reception,
        driver: Driver,
        audience: Audience,
        migrator: Migrator,
        tracing: Tracing | None,
        metrics: Metrics,
    ) -> None:
        self._lifecycle = lifecycle
        self._reception = reception
        self._driver = driver
        self._audience = audience
        self._migrator = migrator
        self._tracing = tracing
        self._metrics = metrics

    async def __call__(self, incoming: Incoming) -> None:
        path, headers = incoming.path, incoming.headers
        endpoint, request_id = ENDPOINTS[path], request_id_of(headers)
        trace = None
        if self._tracing is not None:
            trace = RequestTrace(self._tracing, path, headers, request_id)
        exchange = Exchange(incoming, endpoint, request_id, self._audience, trace)
        reception = self._reception
        try:
            with self._lifecycle:
                body = await reception.body(exchange)
                order = await reception.read(exchange, body)
                del body  # the order has it, perhaps with another model's name
                if order.prompt.request.earlier is not None:
                    order = await reception.at_home(exchange, order)
                exchange.body_read(order)
                if exchange.tenant is not OPEN:
                    exchange.charged(await reception.charge(exchange, order))
                await self._driver.serve(exchange, order)
        except MigrationError as error:
            self._migrator.failed(error, request_id)
            break_off(exchange, str(error))
        except ApiError as error:
            if exchange.stream is not None:
                self._migrator.no_replica(error, request_id)
                break_off(exchange, error.message)
            else:
                exchange.refused(error.status)
                await incoming.send(*endpoint.errors.answer(error, request_id))
        except ClientDisconnectedError:
            exchange.refused(CLIENT_CLOSED_REQUEST)
            self._metrics.disconnects.inc()
        except Exception:
            exchange.refused(500)
            extra = {"request_id": request_id, "path": path}
            logger.exception("a request failed", extra=extra)
            if not incoming.started:  # else the server cuts the unfinished answer
                internal = ApiError(500, "internal error", kind="server_error")
                await incoming.send(*endpoint.errors.answer(internal, request_id))
        finally:
            exchange.close()
