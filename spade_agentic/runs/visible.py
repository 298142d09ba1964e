"""Text that a model or a generated program wrote, safe to look at.

A terminal obeys control characters, a reader is fooled by marks that turn the direction of text around, and no file can hold
half of a surrogate pair. All of these are written out.
"""

from __future__ import annotations

__all__ = ["visible"]

_CONTROLS = [*range(0x09), 0x0B, 0x0C, *range(0x0E, 0x20), *range(0x7F, 0xA0)]
_MARKS = [0x061C, 0x200E, 0x200F, 0xFEFF, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_WRITTEN_OUT = {code: f"\\u{code:04x}" for code in [*_MARKS, *range(0xD800, 0xE000)]}
_WRITTEN_OUT |= {code: f"\\x{code:02x}" for code in _CONTROLS} | {0x0D: "\\r"}


def visible(text: str) -> str:
    """``text`` with everything that is not to be seen written out as in a Python string; tabs and line breaks stay."""
    return text.translate(_WRITTEN_OUT)
