"""report.html: every curve, table and map of an evaluation, on one page that stands by itself.

`page.py` puts it together; each other file makes one part of it from records, as HTML that says
something by itself and as data for the scripts (`*.js`) that draw with plotly. `evaluation/report`
knows the files of an evaluation and nothing of models.
"""

from evaluation.report.page import write_report

__all__ = ["write_report"]
