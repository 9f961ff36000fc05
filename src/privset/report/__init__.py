"""What people look at: one self-contained page about a release, or about several side by side."""

from privset.report.page import page
from privset.report.writing import Report, write_report

__all__ = ["Report", "page", "write_report"]
