"""POST /v1/load_lora_adapter and /v1/unload_lora_adapter, in vLLM's form."""

from fastapi import APIRouter
from starlette.responses import PlainTextResponse, Response

from pando_fleet.registry.adapter import IDENTITY_HEADER
from pando_worker.server.front.json_bodies import JsonRoute
from pando_worker.server.protocol.adapters import LoadAdapterRequest, UnloadAdapterRequest
from pando_worker.server.service import Service


def routes(service: Service) -> APIRouter:
    router = APIRouter(route_class=JsonRoute)
    adapters = service.adapters

    @router.post("/v1/load_lora_adapter")
    async def load_lora_adapter(body: LoadAdapterRequest) -> Response:
        """Serve a LoRA adapter from a folder or a hub repository under a name; with
        `load_inplace`, in place of the one that has the name. A header has its identity."""
        name = body.lora_name
        loaded = await adapters.load(
            name, body.lora_path, replaces=body.load_inplace, is_pinned=body.pin
        )
        return PlainTextResponse(
            f"Success: LoRA adapter '{name}' added successfully.",
            headers={IDENTITY_HEADER: loaded.identity.hex()},
        )

    @router.post("/v1/unload_lora_adapter")
    async def unload_lora_adapter(body: UnloadAdapterRequest) -> Response:
        """Stop serving a LoRA adapter; waits for the requests that use it."""
        await adapters.unload(body.lora_name)
        return PlainTextResponse(f"Success: LoRA adapter '{body.lora_name}' removed successfully.")

    return router
