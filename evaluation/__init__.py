"""Perplexity against length: protocols, scoring, statistics, records, plots and the report.

`sweep` measures any callable that returns the loss of each token; nothing here knows a model. The
protocols are described in `evaluation/protocols.py`, the statistics in `evaluation/statistics.py` and
`evaluation/comparison.py`, and the files written in `evaluation/records.py`.
"""

from evaluation.comparison import compare
from evaluation.records import (
    read_records,
    read_statistics,
    write_records,
    write_statistics,
)
from evaluation.scoring import Undefined, sweep
from evaluation.statistics import bootstrap_interval, paired_difference
from evaluation.tables import format_table
from evaluation.targets import read_targets

__all__ = [
    "Undefined",
    "bootstrap_interval",
    "compare",
    "format_table",
    "paired_difference",
    "read_records",
    "read_statistics",
    "read_targets",
    "sweep",
    "write_records",
    "write_statistics",
]
