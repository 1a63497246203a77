"""Servers of engines that know nothing of Pando, written from their documentation.

async with Vllm() as engine, serving(redis_url, upstream=engine.url) as router: ...

They compute nothing: prompts take the time of `prefill_per_s`, one at a time, and each token that
of `decode_per_s`. Their cache is a set of prompt prefixes.
"""

import asyncio
import json
import os
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.ports import free_port
from tests.router.world import Received

BYTES_PER_TOKEN = 4
PAGE = 16  # tokens


class Engine:
    """The common part of the three: models, chat, completions, and an optional API key."""

    owner = ""
    knows_salts = False

    def __init__(
        self,
        *models: str,
        prefill_per_s: float = 1e6,
        decode_per_s: float = 1e4,
        api_key: str = "",
        tells_cached: bool = True,
    ) -> None:
        self.models = list(models or ("m",))
        self.adapters: list[str] = []
        self.prefill_per_s = prefill_per_s
        self.decode_per_s = decode_per_s
        self.tells_cached = tells_cached
        self.received: list[Received] = []
        self.probed = 0
        self.health_status = 200
        self.hangs = asyncio.Event()  # set: accepts requests without answering
        self.running = 0
        self.most_running = 0
        self._api_key = api_key
        self._port = free_port()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def name(self) -> str:
        return f"127.0.0.1:{self._port}"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """With an empty cache."""
        self._held: set[tuple[str, str]] = set()  # with the salt
        self._prefilling = asyncio.Lock()
        app = web.Application()
        for path in ("/v1/chat/completions", "/v1/completions"):
            app.router.add_post(path, self._complete)
        app.router.add_get("/health", self._health)
        app.router.add_get("/v1/models", self._models)
        self.routes(app.router)
        app.middlewares.append(self._wait_and_check)
        self._runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def routes(self, router: web.UrlDispatcher) -> None:
        """Routes that only this engine has."""

    def card(self, name: str, parent: str | None) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": 1_700_000_000,
            "owned_by": self.owner,
            "root": f"/models/{name}",
            "parent": parent,
            "max_model_len": 8192,
        }

    @web.middleware
    async def _wait_and_check(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.hangs.is_set():
            await asyncio.Event().wait()
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._api_key and request.path != "/health" and shown != self._api_key:
            return web.json_response({"error": "Unauthorized"}, status=401)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _health(self, request: web.Request) -> web.Response:
        self.probed += 1
        return web.Response(status=self.health_status)

    async def _models(self, request: web.Request) -> web.Response:
        cards = [self.card(name, None) for name in self.models]
        cards += [self.card(name, self.models[0]) for name in self.adapters]
        return web.json_response({"object": "list", "data": cards})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.received.append(Received(request.path_qs, headers, raw))
        body = json.loads(raw)
        if body["model"] not in self.models + self.adapters:
            return web.json_response({"object": "error", "message": "no such model"}, status=404)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            return await self._answer(request, body)
        finally:
            self.running -= 1

    async def _answer(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        text = _text(body)
        prompt = max(1, len(text) // BYTES_PER_TOKEN)
        async with self._prefilling:
            salt = str(body.get("cache_salt") or "") if self.knows_salts else ""
            cached = min(self._cached(salt, text), prompt - 1)
            await asyncio.sleep((prompt - cached) / self.prefill_per_s)
            self._hold(salt, text)
        tokens = body.get("max_tokens") or 16
        usage: dict[str, Any] = {
            "prompt_tokens": prompt,
            "total_tokens": prompt + tokens,
            "completion_tokens": tokens,
            "prompt_tokens_details": {"cached_tokens": cached} if self.tells_cached else None,
        }
        common = {"id": f"cmpl-{os.urandom(4).hex()}", "created": 1, "model": body["model"]}
        if not body.get("stream"):
            await asyncio.sleep(tokens / self.decode_per_s)
            choice = {"index": 0, "text": "x" * tokens, "finish_reason": "length"}
            return web.json_response({**common, "choices": [choice], "usage": usage})
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for number in range(tokens):
            if number:
                await asyncio.sleep(1 / self.decode_per_s)
            choice = {"index": 0, "text": "x", "finish_reason": None}
            await response.write(_event({**common, "choices": [choice]}))
        if (body.get("stream_options") or {}).get("include_usage"):
            await response.write(_event({**common, "choices": [], "usage": usage}))
        await response.write(b"data: [DONE]\n\n")
        await response.write_eof()
        return response

    def _cached(self, salt: str, text: str) -> int:
        """Cached tokens, in whole pages."""
        pages = 0
        while (salt, text[: (pages + 1) * PAGE * BYTES_PER_TOKEN]) in self._held:
            if (pages + 1) * PAGE * BYTES_PER_TOKEN > len(text):
                break
            pages += 1
        return pages * PAGE

    def _hold(self, salt: str, text: str) -> None:
        step = PAGE * BYTES_PER_TOKEN
        self._held.update((salt, text[:end]) for end in range(step, len(text) + 1, step))

    def forget(self) -> None:
        """Drop the cache, as if other prompts had filled it."""
        self._held.clear()


class Vllm(Engine):
    """vLLM's OpenAI server: `/health` empty, LoRA adapters in the model list, `/metrics`."""

    owner = "vllm"
    knows_salts = True
    blocks = 1000
    usage = 0.25
    lora = ""  # samples of `vllm:lora_requests_info`

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/metrics", self._metrics)

    async def _metrics(self, request: web.Request) -> web.Response:
        labels = 'engine="0",model_name="m"'
        return web.Response(
            text="# HELP vllm:num_requests_running Number of requests in model execution batches.\n"
            "# TYPE vllm:num_requests_running gauge\n"
            f"vllm:num_requests_running{{{labels}}} 3.0\n"
            f"vllm:num_requests_waiting{{{labels}}} 2.0\n"
            f'vllm:num_requests_waiting_by_reason{{{labels},reason="capacity"}} 2.0\n'
            "# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.\n"
            f"vllm:kv_cache_usage_perc{{{labels}}} {self.usage}\n"
            "# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig\n"
            'vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",'
            f'gpu_memory_utilization="0.9",num_gpu_blocks="{self.blocks}"}} 1.0\n' + self.lora
        )


class Sglang(Engine):
    """SGLang's server: `/get_server_info`."""

    owner = "sglang"
    knows_salts = True

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/get_server_info", self._info)

    async def _info(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "model_path": "/models/m",
                "max_running_requests": 48,
                "status": "ready",
                "max_total_num_tokens": 20480,
                "max_req_input_len": 20474,
                "internal_states": [{"last_gen_throughput": 0.0}],
                "version": "0.5.4",
            }
        )


class LlamaCpp(Engine):
    """llama-server: 503 while it loads the model, slots in `/props`."""

    owner = "llamacpp"
    slots = 2

    def card(self, name: str, parent: str | None) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": 1_700_000_000,
            "owned_by": self.owner,
            "meta": {"vocab_type": 2, "n_vocab": 128256, "n_ctx_train": 131072},
        }

    async def _health(self, request: web.Request) -> web.Response:
        self.probed += 1
        if self.health_status == 503:
            error = {"code": 503, "message": "Loading model", "type": "unavailable_error"}
            return web.json_response({"error": error}, status=503)
        return web.json_response({"status": "ok"})

    def routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/props", self._props)

    async def _props(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "default_generation_settings": {"id": 0, "n_ctx": 4096, "params": {}},
                "total_slots": self.slots,
                "model_path": "/models/m.gguf",
                "chat_template": "",
                "build_info": "b6000",
            }
        )


def _event(body: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def _text(body: dict[str, Any]) -> str:
    if "messages" in body:
        return "".join(f"<{one['role']}>{one['content']}" for one in body["messages"])
    return str(body["prompt"])
