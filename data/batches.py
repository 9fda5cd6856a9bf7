"""Training batches as a pure function of (seed, step)."""

import functools
import hashlib
from collections.abc import Callable

import numpy as np

from data.token_file import TokenFile


class Batches:
    """Windows of length + 1 tokens over the whole stream, each once an epoch, newly ordered.

    Window w holds tokens w * length .. (w + 1) * length, so each token but the first is the target
    of one window; what is left after the last whole window is dropped. Row r of the batch at step s
    is number s * batch_size + r of an endless sequence of epochs: a batch may straddle two, none is
    ever short. `step` counts optimiser steps. weigh(tokens [b, T + 1]) -> [b, T] says which targets
    count, where not all do.
    """

    def __init__(
        self,
        token_file: TokenFile,
        length: int,
        batch_size: int,
        seed: int,
        isolate_documents: bool,
        weigh: Callable[[np.ndarray], np.ndarray] | None = None,
    ):
        for name, value in (("train.length", length), ("train.batch_size", batch_size)):
            if value < 1:
                raise ValueError(f"{name}={value} should be 1 or more")
        count = max(0, token_file.num_tokens - 1) // length
        if count == 0:
            raise ValueError(
                f"train.length={length} needs a window of {length + 1} tokens; "
                f"the training text has {token_file.num_tokens}, so 0 windows"
            )
        if batch_size > count:
            raise ValueError(
                f"train.batch_size={batch_size} is more than the {count} windows of "
                f"train.length={length} in the training text"
            )
        self.windows_per_epoch = count
        self._file = token_file
        self._length = length
        self._batch_size = batch_size
        self._seed = seed
        self._isolate = isolate_documents
        self._weigh = weigh
        self._order = functools.lru_cache(maxsize=2)(self._epoch_order)

    def epoch(self, step: int) -> int:
        """The epoch, from 0, of the first row of the batch at `step`."""
        return step * self._batch_size // self.windows_per_epoch

    def batch(self, step: int, start: int = 0, stop: int | None = None) -> dict[str, np.ndarray]:
        """Rows [start, stop) of the batch at `step`; b = stop - start, T = length.

        tokens int32 [b, T + 1]; weights float32 [b, T], 1 where the target tokens[:, 1:] counts.
        With isolated documents also segments int32 [b, T], equal within a document, and positions
        int32 [b, T], counted from the document's start or, for a document that began before, from
        the window's. A separator belongs to the document it ends, and the target after it, the
        first token of another document, has weight 0.
        """
        stop = self._batch_size if stop is None else stop
        if step < 0 or not 0 <= start <= stop <= self._batch_size:
            raise ValueError(f"no rows {start}:{stop} of {self._batch_size} at step {step}")
        first = step * self._batch_size
        windows = [self._window(first + row) for row in range(start, stop)]
        tokens = np.empty((len(windows), self._length + 1), np.int32)
        for row, window in enumerate(windows):
            begin = window * self._length  # a Python int: no 32-bit limit on long token files
            tokens[row] = self._file.tokens[begin : begin + self._length + 1]
        weights = np.ones((len(windows), self._length), np.float32)
        batch = {"tokens": tokens, "weights": self._weigh(tokens) if self._weigh else weights}
        if self._isolate:
            self._add_isolation(batch)
        return batch

    def _window(self, example: int) -> int:
        epoch, index = divmod(example, self.windows_per_epoch)
        return int(self._order(epoch)[index])

    def _epoch_order(self, epoch: int) -> np.ndarray:
        # Sorted raw words: numpy keeps the raw stream of a bit generator for ever, shuffle not.
        key = hashlib.blake2b(f"{self._seed}/{epoch}".encode(), digest_size=16).digest()
        words = np.random.Philox(key=np.frombuffer(key, "<u8")).random_raw(self.windows_per_epoch)
        return np.argsort(words, kind="stable")

    def _add_isolation(self, batch: dict[str, np.ndarray]) -> None:
        ends = batch["tokens"][:, :-1] == self._file.separator  # [b, T]
        segments = np.zeros(ends.shape, np.int32)
        segments[:, 1:] = np.cumsum(ends[:, :-1], axis=1)
        index = np.arange(self._length, dtype=np.int32)[None, :]
        starts = np.zeros(ends.shape, np.int32)
        starts[:, 1:] = np.where(ends[:, :-1], index[:, 1:], 0)
        batch["segments"] = segments
        batch["positions"] = index - np.maximum.accumulate(starts, axis=1)
        batch["weights"][ends] = 0.0


def batch_hash(tokens: np.ndarray) -> str:
    """16 hex digits of the ids [B, T + 1] of a whole batch, shape included."""
    tokens = np.ascontiguousarray(np.asarray(tokens), "<i4")
    return hashlib.sha256(str(tokens.shape).encode() + tokens.tobytes()).hexdigest()[:16]
