"""Seeds that depend on names alone, so that work can be repeated after a kill, in any order, on any machine."""

from __future__ import annotations

import hashlib

__all__ = ["INSTANCE_SEEDS", "instance_seeds", "stable_seed"]

INSTANCE_SEEDS = 10**6
"""Training draws instance seeds below this number; evaluation and gates draw theirs from above it."""


def stable_seed(*parts: str | int) -> int:
    """A 63-bit seed from ``parts``: the same in every process, and unrelated for any two different lists of parts."""
    digest = hashlib.sha256()
    for part in parts:
        kind = "i" if isinstance(part, int) else "s"
        encoded = str(part).encode()
        digest.update(f"{kind}{len(encoded)}:".encode())
        digest.update(encoded)
    return int.from_bytes(digest.digest()[:8], "big") >> 1


def instance_seeds(count: int, *parts: str | int) -> list[int]:
    """``count`` different instance seeds in ``[0, INSTANCE_SEEDS)``, a function of ``parts`` alone."""
    assert 0 <= count <= INSTANCE_SEEDS // 2
    seeds: list[int] = []
    attempt = 0
    while len(seeds) < count:
        seed = stable_seed(*parts, "instance", attempt) % INSTANCE_SEEDS
        if seed not in seeds:
            seeds.append(seed)
        attempt += 1
    return seeds
