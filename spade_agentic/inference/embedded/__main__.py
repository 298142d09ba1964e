"""``python -m spade_agentic.inference.embedded --model DIR``: the server process.

By itself it listens until it is told to stop. Under a parent (``--child``) the first line of standard input is a JSON object
(``{"api_key": ...}``), the first line of standard output says where it listens (``{"port": ..., "pid": ...}``), and the process
ends as soon as standard input does: a parent that is killed leaves nothing behind.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import ctypes
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import torch
from aiohttp import web

from ...errors import UserError
from ..publishing import read_weights
from .config import load_model_config
from .http import Service, make_app
from .model import Qwen3, Weights
from .scheduler import Scheduler

_PR_SET_PDEATHSIG = 1
_KEEPALIVE_SECONDS = 3600.0


def _arguments(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m spade_agentic.inference.embedded", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="Hugging Face folder of a Qwen3 model")
    parser.add_argument("--served-model-name", help="name in the API (default: the folder's name)")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of the forward pass")
    parser.add_argument("--max-batch", type=int, default=256, help="requests that run at once")
    parser.add_argument("--cache-tokens", type=int, default=65536, help="tokens that the prefix cache holds, per lane")
    parser.add_argument("--context-tokens", type=int, help="longest prompt and completion together (default: the model's)")
    parser.add_argument("--weight-version", default="0")
    parser.add_argument("--child", action="store_true", help="end with the parent; see above")
    return parser.parse_args(argv)


def _die_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent dies (Linux); the pipe on standard input is the portable half."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _watch_stdin(on_end: Callable[[], object]) -> None:
    def watch() -> None:
        while sys.stdin.buffer.readline():
            pass
        on_end()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def build_service(args: argparse.Namespace, api_key: str | None) -> Service:
    """Load the model and make everything but the sockets. Raises UserError where the folder cannot be served."""
    torch.set_num_threads(args.threads)
    config = load_model_config(args.model)
    context = min(args.context_tokens or config.max_positions, config.max_positions)
    weights = Weights(config, read_weights(args.model), args.weight_version)
    scheduler = Scheduler(Qwen3(config, weights, context), max_batch=args.max_batch, pool_tokens=args.cache_tokens)
    facts = {
        "threads": args.threads, "max_batch": args.max_batch, "cache_tokens": args.cache_tokens, "pid": os.getpid(),
        "model_path": str(args.model), "kv_bytes_per_token": config.kv_bytes_per_token, "torch": torch.__version__,
    }
    return Service(
        scheduler=scheduler, weights=weights, folder=args.model, served_name=args.served_model_name or args.model.name,
        context_tokens=context, api_key=api_key, facts=facts,
    )


async def _serve(service: Service, args: argparse.Namespace) -> None:
    loop, stop = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    runner = web.AppRunner(make_app(service), access_log=None, keepalive_timeout=_KEEPALIVE_SECONDS, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, args.host, args.port, backlog=1024)
    await site.start()
    port = runner.addresses[0][1]
    logging.info("listening on %s:%s, process %s", args.host, port, os.getpid())
    print(json.dumps({"port": port, "pid": os.getpid()}), flush=True)
    if args.child:
        _watch_stdin(lambda: loop.call_soon_threadsafe(stop.set))
    while not stop.is_set() and service.scheduler.alive:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), 0.5)
    failed = service.scheduler.failure
    if failed is None:
        await asyncio.to_thread(service.scheduler.stop)
    await runner.shutdown()
    await runner.cleanup()
    if failed is not None:
        raise SystemExit(1)


def main(argv: list[str] | None = None) -> int:
    args = _arguments(argv)
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    api_key = None
    if args.child:
        _die_with_parent()
        line = sys.stdin.buffer.readline()
        if not line:
            return 1  # the parent was gone before it said anything
        api_key = json.loads(line).get("api_key")
    # The compute thread holds the interpreter between two kernels only; give it back to HTTP quickly, and take it back.
    sys.setswitchinterval(0.0005)
    try:
        service = build_service(args, api_key)
    except UserError as error:
        if args.child:
            print(json.dumps({"error": str(error)}), flush=True)
        else:
            print(f"error: {error}", file=sys.stderr)
        return 2
    service.scheduler.start()
    asyncio.run(_serve(service, args))
    return 0


if __name__ == "__main__":
    sys.exit(main())
