"""The embedded engine: the server of :mod:`spade_agentic.inference.embedded` as a child process, and a client to it.

The child dies with this process, however this process dies; its output goes to a log file.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from ..errors import EngineError, EngineUnavailable, UserError, WeightUpdateFailed
from ..hooks.records import Completion, Sampling
from .client import PolicyClient
from .options import EmbeddedOptions
from .publishing import combined_checksum, folder_checksums

__all__ = ["EmbeddedEngine"]

_END_SECONDS = 1.0
"""How long a server that cannot be reached may take to be known as ended."""
_STOP_SECONDS = 10.0


class EmbeddedEngine:
    """An :class:`~spade_agentic.hooks.kinds.InferenceEngine` on this machine's CPU.

    ``log_file`` receives the server's output (``None``: it is dropped). ``context_tokens`` bounds prompt and completion
    together; ``None`` takes the model's own limit.
    """

    def __init__(
        self, options: EmbeddedOptions | None = None, *, log_file: Path | None = None, context_tokens: int | None = None
    ) -> None:
        self.base_url = ""
        self._options = options or EmbeddedOptions()
        self._log_file = log_file
        self._context_tokens = context_tokens
        self._process: subprocess.Popen[bytes] | None = None
        self._client: PolicyClient | None = None

    @property
    def pid(self) -> int | None:
        """The server's process id; ``None`` before the start and after the stop."""
        return self._process.pid if self._process else None

    @property
    def client(self) -> PolicyClient:
        """The client, for administration. Raises EngineUnavailable before the start and after the stop."""
        if self._client is None:
            raise EngineUnavailable("the embedded engine is not started")
        return self._client

    async def start(self, model_dir: Path) -> None:
        """Serve ``model_dir`` as weight version 0, and wait until the server is well.

        Raises UserError where the folder cannot be served, EngineUnavailable where the server does not come up.
        """
        if self._process is not None:
            raise EngineError("the embedded engine is started already")
        api_key = secrets.token_urlsafe(24)
        # Started from this thread and not from a worker's: the kernel's death signal is bound to the thread that forks.
        self._process = process = self._spawn(model_dir)
        try:
            port = await asyncio.wait_for(asyncio.to_thread(_shake_hands, process, api_key), self._options.start_timeout_s)
        except TimeoutError:
            await self._give_up()
            raise EngineUnavailable(self._describe("the embedded engine did not come up in time")) from None
        except EngineUnavailable as error:
            await self._give_up()
            raise EngineUnavailable(self._describe(str(error))) from None
        except (UserError, asyncio.CancelledError):
            await self._give_up()
            raise
        self.base_url = f"http://127.0.0.1:{port}"
        self._client = PolicyClient(
            self.base_url, model=model_dir.name, api_key=api_key, timeout_s=self._options.request_timeout_s,
            retries=self._options.retries,
        )
        if not await self._client.health():
            await self.stop()
            raise EngineUnavailable(self._describe("the embedded engine listens but is not well"))

    def _spawn(self, model_dir: Path) -> subprocess.Popen[bytes]:
        o = self._options
        threads = o.threads or min(2, len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1)
        command = [
            sys.executable, "-P", "-m", "spade_agentic.inference.embedded", "--child", "--model", str(model_dir),
            "--threads", str(threads), "--max-batch", str(o.max_batch), "--cache-tokens", str(o.cache_tokens),
        ]
        if self._context_tokens is not None:
            command += ["--context-tokens", str(self._context_tokens)]
        # A session of its own: a Ctrl-C, or a terminal that is closed, is for this process to answer.
        with ExitStack() as closing:
            log: Any = subprocess.DEVNULL
            if self._log_file is not None:
                log = closing.enter_context(self._log_file.open("ab"))
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True
            )

    async def complete(
        self, token_ids: Sequence[int], sampling: Sampling, *, seed: int, request_id: str, stop_token_ids: Sequence[int],
        wave: tuple[str, int] | None = None,
    ) -> Completion:
        """See :meth:`PolicyClient.complete`."""
        try:
            return await self.client.complete(
                token_ids, sampling, seed=seed, request_id=request_id, stop_token_ids=stop_token_ids, wave=wave
            )
        except EngineUnavailable as error:
            await self._wait_for_its_end()
            raise EngineUnavailable(self._describe(str(error))) from error

    async def _wait_for_its_end(self) -> None:
        """The connections of a process that is killed break a moment before it can be waited for."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, _END_SECONDS)

    async def publish(self, weights_dir: Path, version: int) -> None:
        """Serve the weights of ``weights_dir`` as ``version``; what runs is recomputed on them and goes on.

        Raises WeightUpdateFailed where what the server holds afterwards is not, number for number, what the folder holds.
        """
        client = self.client
        await client.pause("retract")
        try:
            await client.update_weights(_absolute(weights_dir), str(version))
            served = (await client.model_info()).get("weight_version")
            if served != str(version):
                raise WeightUpdateFailed(f"version {version} was published, but {self.base_url} serves {served}")
            held, wanted = await client.weights_checksum(), combined_checksum(folder_checksums(weights_dir))
            if held != wanted:
                raise WeightUpdateFailed(f"{self.base_url} holds other numbers than {weights_dir} ({held[:12]}, {wanted[:12]})")
        finally:
            with suppress(EngineUnavailable):  # a server that is gone has told so already
                await client.resume()

    async def _give_up(self) -> None:
        """End a server that is still starting: it does not look at its pipe yet."""
        if self._process is not None:
            self._process.kill()
        await self.stop()

    async def stop(self) -> None:
        """End the server and wait for its end. Does nothing where there is none."""
        client, self._client = self._client, None
        process, self._process = self._process, None
        if client is not None:
            await client.close()
        if process is not None:
            await asyncio.shield(asyncio.to_thread(_end, process))

    def _describe(self, what: str) -> str:
        code = self._process.poll() if self._process else None
        parts = [what]
        if code is not None:
            parts.append(f"the server's process ended with code {code}")
        if self._log_file is not None:
            parts.append(f"its log is {self._log_file}")
        return "; ".join(parts)


def _absolute(folder: Path) -> str:
    return str(folder.resolve())


def _shake_hands(process: subprocess.Popen[bytes], api_key: str) -> int:
    """Give the server its key and read where it listens."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):  # it ended at once: the missing answer says so
        process.stdin.write(json.dumps({"api_key": api_key}).encode() + b"\n")
        process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise EngineUnavailable(f"the embedded engine ended with code {process.wait(_STOP_SECONDS)} before it listened")
    answer = json.loads(line)
    if "error" in answer:
        raise UserError(answer["error"])
    return int(answer["port"])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the pipe, which ends the server; kill it where that does not help."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    process.stdout.close()
