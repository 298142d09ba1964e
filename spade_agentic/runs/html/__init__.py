"""A run, or several, as one HTML file that needs nothing else: no network, no script, no other file.

What is shown is made in three steps that know nothing of each other. :mod:`.facts` reads the store. :mod:`.success`,
:mod:`.designer`, :mod:`.machinery` and :mod:`.gallery` make sections of it (:mod:`.model`). :mod:`.svg` and :mod:`.page` draw
them.
"""

from __future__ import annotations

from .comparison import comparison_page, write_comparison
from .page import GALLERY, report_page, write_report

__all__ = ["GALLERY", "comparison_page", "report_page", "write_comparison", "write_report"]
