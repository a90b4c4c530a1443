"""What people look at: tables, pictures and pages, made from stored runs.

Nothing here runs attacks. ``gather(run)`` has all numbers of a report, and ``report_page`` makes
the page of `brusle report` of them.
"""

from brusle.lazy import submodules
from brusle.report.comparison import Section, compare_runs
from brusle.report.comparison_page import comparison_page
from brusle.report.content import Content, gather
from brusle.report.curve_sheet import write_curves
from brusle.report.gallery import Example, run_examples, write_gallery
from brusle.report.markdown import comparison_markdown, report_markdown
from brusle.report.page import report_page
from brusle.report.run_folder import write_files
from brusle.report.settings import FamilyReport, SettingReport

__getattr__ = submodules(__name__)

__all__ = [
    "Content",
    "Example",
    "FamilyReport",
    "Section",
    "SettingReport",
    "compare_runs",
    "comparison_markdown",
    "comparison_page",
    "gather",
    "report_markdown",
    "report_page",
    "run_examples",
    "write_curves",
    "write_files",
    "write_gallery",
]
