"""Reports: one self-contained HTML page per run or comparison, and tables for the terminal.

Everything here is rebuilt from aggregated figures; no model code is imported.
"""

from habitus.report.folder import write_comparison, write_report
from habitus.report.model import ReportData
from habitus.report.page import render_comparison, render_run
from habitus.report.terminal import print_comparison, print_run

__all__ = [
    "ReportData",
    "print_comparison",
    "print_run",
    "render_comparison",
    "render_run",
    "write_comparison",
    "write_report",
]
