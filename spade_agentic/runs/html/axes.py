"""Round numbers for the axes of charts."""

from __future__ import annotations

import math

__all__ = ["nice_ticks"]


def nice_ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers, about ``count`` of them, that span ``low`` to ``high``; the first and last may lie outside."""
    if high - low <= 1e-9 * max(abs(low), abs(high)):  # one value, as far as an axis can show
        high = low + (abs(low) or 1.0)
    raw = (high - low) / max(1, count)
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(step * k, 12) for k in range(first, last + 1)]
