"""Kills the run that loads it with SIGKILL, at one point: a third party's plugin that patches from outside.

The point stands in ``kill.json`` of the working directory: ``{"at": NAME, "n": N}`` kills at the N-th time that NAME is reached
in this process. Without the file nothing is killed. Nothing in the product knows of these points.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from spade_agentic import hookimpl
from spade_agentic.inference.client import PolicyClient
from spade_agentic.inference.engine import EmbeddedEngine
from spade_agentic.learning.torch_backend import TorchLearner
from spade_agentic.runs import checkpoints
from spade_agentic.runs.store import RunStore

ORDER: dict[str, int] = json.loads(Path("kill.json").read_text()) if Path("kill.json").exists() else {}
_reached: Counter[str] = Counter()


def reach(point: str) -> None:
    _reached[point] += 1
    if ORDER and ORDER["at"] == point and ORDER["n"] == _reached[point]:
        die()


def die() -> None:
    Path("killed").touch()
    os.kill(os.getpid(), signal.SIGKILL)


def around(owner: Any, name: str, *, before: str | None = None, after: str | None = None) -> None:
    """Reach a point when ``owner.name`` is called, or when it returns."""
    inner: Callable[..., Any] = getattr(owner, name)

    def enter() -> None:
        if before is not None:
            reach(before)

    def leave() -> None:
        if after is not None:
            reach(after)

    if asyncio.iscoroutinefunction(inner):

        @functools.wraps(inner)
        async def wrapped_async(*args: Any, **kwargs: Any) -> Any:
            enter()
            result = await inner(*args, **kwargs)
            leave()
            return result

        setattr(owner, name, wrapped_async)
    else:

        @functools.wraps(inner)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            enter()
            result = inner(*args, **kwargs)
            leave()
            return result

        setattr(owner, name, wrapped)


# during the update
around(TorchLearner, "step", before="update:begins", after="update:ends")
around(torch.Tensor, "backward", before="update:backward")
around(torch.optim.AdamW, "step", after="update:weights_changed")
# inside the checkpoint's write
around(TorchLearner, "save", before="checkpoint:begins", after="checkpoint:learner_written")
around(TorchLearner, "save_weights", after="checkpoint:filled")
around(checkpoints, "_write_manifest", after="checkpoint:manifest_written")
around(checkpoints, "fsync_tree", after="checkpoint:synced")
# between checkpoint and commit
around(RunStore, "commit_step", before="commit:begins", after="commit:ends")
around(RunStore, "_drop_stale_states", after="commit:inside_the_transaction")
# during weight publishing
around(EmbeddedEngine, "publish", before="publish:begins", after="publish:ends")
around(PolicyClient, "pause", after="publish:paused")
around(PolicyClient, "weights_checksum", before="publish:served")


_update_weights = PolicyClient.update_weights


async def update_weights(self: PolicyClient, *args: Any, **kwargs: Any) -> Any:
    """Kill while the server is reading the new weights."""
    if ORDER.get("at") == "publish:loading" and ORDER["n"] == _reached["publish:loading"] + 1:
        threading.Timer(0.002, die).start()
    _reached["publish:loading"] += 1
    return await _update_weights(self, *args, **kwargs)


PolicyClient.update_weights = update_weights  # type: ignore[method-assign]


@hookimpl
def play_finished() -> None:
    reach("plays")


@hookimpl
def program_admitted() -> None:
    reach("plays:round")


@hookimpl
def batch_ready() -> None:
    reach("plays:all_done")
