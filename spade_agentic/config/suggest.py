"""Naming the nearest thing to what the user wrote."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = ["did_you_mean", "nearest"]


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The most similar of ``known``, or ``None`` where nothing is similar.

    Case and the difference between ``-`` and ``_`` do not count.
    """
    by_key = {_key(k): k for k in known}
    matches = difflib.get_close_matches(_key(name), list(by_key), n=1, cutoff=0.6)
    if matches:
        return by_key[matches[0]]
    starts = sorted(k for k in by_key if _key(name) and (k.startswith(_key(name)) or k.endswith(_key(name))))
    return by_key[starts[0]] if starts else None


def did_you_mean(name: str, known: Iterable[str], *, noun: str = "name") -> str:
    """A sentence for an error's ``todo``: the nearest of ``known``, and all of them where they are few."""
    known = sorted(set(known))
    if not known:
        return f"there is no {noun} to choose from"
    listed = ", ".join(known) if len(known) <= 30 else ", ".join(known[:30]) + ", ..."
    best = nearest(name, known)
    return f"did you mean {best!r}? known: {listed}" if best else f"use one of: {listed}"


def _key(name: str) -> str:
    return name.lower().replace("-", "_")
