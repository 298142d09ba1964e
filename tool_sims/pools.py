"""Closed pools of values, so that a small model can learn to read and copy all of them."""

from __future__ import annotations

__all__ = ["FIRST_NAMES", "LAST_NAMES", "SHOPS"]

FIRST_NAMES: tuple[str, ...] = (
    "Ada", "Amir", "Ana", "Ben", "Bela", "Carl", "Chen", "Dana", "Dora", "Emil", "Eva", "Finn", "Gina", "Hugo", "Ida", "Ivan",
    "Jana", "Jose", "Kai", "Kim", "Lars", "Lena", "Lucy", "Marc", "Mia", "Nina", "Noah", "Olga", "Omar", "Paul", "Rosa", "Ruth",
    "Sara", "Sven", "Tara", "Tom", "Uma", "Vera", "Yara", "Zoe",
)  # fmt: skip
LAST_NAMES: tuple[str, ...] = (
    "Adler", "Baker", "Berg", "Bauer", "Costa", "Cruz", "Dahl", "Diaz", "Eder", "Fox", "Frank", "Gray", "Haas", "Hill", "Horn",
    "Ito", "Jung", "Kern", "Khan", "King", "Klein", "Lang", "Levy", "Lopez", "Marsh", "Moss", "Nagy", "Novak", "Okafor", "Park",
    "Pohl", "Quinn", "Reed", "Rossi", "Sato", "Silva", "Stone", "Vogel", "Weiss", "Young",
)  # fmt: skip
SHOPS: tuple[str, ...] = (
    "bakery", "bookshop", "cinema", "florist", "garage", "gym", "hotel", "market", "museum", "pharmacy", "taxi", "theater",
)  # fmt: skip
