"""Evaluation windows that never cross a document."""

from collections.abc import Sequence

import numpy as np


def disjoint_windows(documents: Sequence[np.ndarray], length: int) -> tuple[np.ndarray, np.ndarray]:
    """(tokens int32 [n, length + 1], weights float32 [n, length]), each target in one window.

    All tokens of a document but its first are targets, in windows of `length` targets. The last
    window of a document stays in place and is padded on the right with id 0 and weight 0. Documents
    of fewer than two tokens have no target.
    """
    if length < 1:
        raise ValueError(f"length={length} should be 1 or more")
    counts = [max(0, -(-(len(document) - 1) // length)) for document in documents]
    tokens = np.zeros((sum(counts), length + 1), np.int32)
    weights = np.zeros((sum(counts), length), np.float32)
    row = 0
    for document, count in zip(documents, counts, strict=True):
        for start in range(0, count * length, length):
            window = document[start : start + length + 1]
            tokens[row, : len(window)] = window
            weights[row, : len(window) - 1] = 1.0
            row += 1
    return tokens, weights
