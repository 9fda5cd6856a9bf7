"""Which tokens are scored, and from which windows: the evaluation protocols as plans.

A document of n tokens has the n - 1 targets 1 … n - 1: target t is the token at index t, and index
0 is never a target, since nothing comes before it. No protocol inserts a special token: a window
holds what its document holds, and nothing of any other. A window of length ℓ that starts at s has
the inputs s … s + ℓ - 1 and the targets s + 1 … s + ℓ.

* `fixed`: blocks of `targets` consecutive targets, the same at every length; each is scored by the
  one window that ends with it.
* `cropped`: the same targets, each in a window of its own with exactly L inputs, so that all have
  the same context.
* `sliding`: windows advanced by `stride`; the first scores all its targets, each later one its last
  `stride`.
* `disjoint`: `sliding` with stride ℓ. Part of what it gains with ℓ is only that fewer targets sit
  near a window's start.
* `position`: the windows of `disjoint`, with the losses grouped by the target's place in its
  window.
* `recurrent`: documents read in segments of L tokens, the training length, whatever ℓ is; every
  target is scored once, in its segment. At ℓ a segment sees itself and a memory of the ℓ - L tokens
  before it: the raw keys and values computed when their own segments were read (Transformer-XL,
  Dai et al. 2019, section 3.2). So ℓ is the attention span; the receptive field is longer, since
  what is kept has itself seen further back, layer by layer. A window here is what a segment may
  attend to, and a target's place in it is its position: positions stay below ℓ under every scheme,
  and a full memory always stands at the same ones. ℓ = L has no memory and is `disjoint`; below L
  the protocol is undefined. Memory never crosses a document.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

PROTOCOLS = ("fixed", "disjoint", "sliding", "position", "recurrent")


@dataclass(frozen=True)
class Plan:
    """The W windows of one point, each with the run of targets that it scores: int64 arrays [W].

    Attributes:
      length: ℓ, the inputs in every window (recurrent: at most, memory included).
      document: index of the window's document.
      start: index of the window's first input in its document.
      first, stop: the targets scored, first … stop - 1, as indices in the document.
      group: what counts as one unit where documents are too few to resample: the window, or its
        block (fixed, cropped), or the consecutive segments that make up ℓ tokens (recurrent).
      segment: inputs that one call of the scorer reads where the rest of a window is its memory, or
        None where it reads whole windows.
    """

    length: int
    document: np.ndarray
    start: np.ndarray
    first: np.ndarray
    stop: np.ndarray
    group: np.ndarray
    segment: int | None = None

    @property
    def width(self) -> int:
        """Inputs that one call of the scorer reads of a window."""
        return self.segment or self.length

    @property
    def read(self) -> np.ndarray:
        """Index in its document of the first input read of each window, int64 [W]."""
        return self.start if self.segment is None else self.first - 1

    @property
    def tail(self) -> int:
        """How many of the last losses of a window hold all that is scored of any."""
        return int((self.read + self.width + 1 - self.first).max())

    @property
    def counts(self) -> np.ndarray:
        """Targets scored by each window, int64 [W]."""
        return self.stop - self.first

    def each_target(self, values: np.ndarray) -> np.ndarray:
        """Each window's value, [W], repeated for the targets that it scores, [n]."""
        return np.repeat(values, self.counts)

    def targets(self) -> np.ndarray:
        """Index in its document of each target scored, int64 [n], in the order of scoring."""
        before = np.cumsum(self.counts) - self.counts
        return np.arange(self.counts.sum()) + self.each_target(self.first - before)


def fixed(sizes: np.ndarray, length: int, longest: int, stride: int, targets: int) -> Plan:
    """Blocks ending at targets `longest`, `longest` + stride, …; the windows end with them."""
    ends = [np.arange(longest, size, stride) for size in sizes]
    document = np.repeat(np.arange(len(sizes)), [len(e) for e in ends])
    end = np.concatenate(ends)
    return Plan(length, document, end - length, end - targets + 1, end + 1, np.arange(len(end)))


def cropped(blocks: Plan, length: int) -> Plan:
    """The targets of `blocks`, each in a window of its own with exactly `length` inputs."""
    target = blocks.targets()
    document, group = blocks.each_target(blocks.document), blocks.each_target(blocks.group)
    return Plan(length, document, target - length, target, target + 1, group)


def sliding(sizes: np.ndarray, length: int, stride: int) -> Plan:
    """Windows of `length` advanced by `stride`, which score each target of every document once.

    The last window of a document may reach past its end (it is never moved back), and a short
    document is one short window.
    """
    last = sizes - 1  # the last target of each document
    beyond = np.maximum(0, last - length)  # targets that the first window does not reach
    document, rank = _ranked(np.where(last > 0, 1 + -(-beyond // stride), 0))
    start = rank * stride
    first = np.where(rank == 0, 1, start + length - stride + 1)
    stop = np.minimum(start + length, last[document]) + 1
    plan = Plan(length, document, start, first, stop, np.arange(len(start)))
    _check_each_target_once(plan, last)
    return plan


def recurrent(sizes: np.ndarray, length: int, segment: int) -> Plan:
    """Segments side by side, each with the length - segment tokens before it, as far as there are."""
    last = sizes - 1
    document, rank = _ranked(-(-last // segment))
    begin = rank * segment
    start = np.maximum(0, begin + segment - length)
    stop = np.minimum(begin + segment, last[document]) + 1
    # segments that share a memory are not independent: a unit is as long as a window
    group = np.cumsum(rank % -(-length // segment) == 0) - 1
    plan = Plan(length, document, start, begin + 1, stop, group, segment)
    _check_each_target_once(plan, last)
    return plan


def _ranked(windows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(document, rank in its document) of each window, from the number of them per document."""
    document = np.repeat(np.arange(len(windows)), windows)
    return document, np.arange(len(document)) - np.repeat(np.cumsum(windows) - windows, windows)


def _check_each_target_once(plan: Plan, last: np.ndarray) -> None:
    """Raises where the runs of targets do not tile 1 … `last` of every document in order."""
    opens = np.diff(plan.document, prepend=-1) != 0
    closes = np.diff(plan.document, append=len(last)) != 0
    tiled = (
        np.array_equal(plan.document[opens], np.flatnonzero(last > 0))
        and np.all(plan.first[opens] == 1)
        and np.array_equal(plan.stop[closes], last[last > 0] + 1)
        and np.array_equal(plan.first[~opens], plan.stop[:-1][~closes[:-1]])
        and np.all(plan.counts > 0)
        and np.all(plan.first > plan.read)
        and np.all(plan.start <= plan.read)
        and np.all(plan.stop <= plan.read + plan.width + 1)
        and np.all(plan.stop <= plan.start + plan.length + 1)
    )
    if not tiled:
        raise RuntimeError(
            f"windows of length {plan.length} do not score each target of the corpus exactly once"
        )


def calls(plan: Plan, batch_size: int) -> np.ndarray:
    """The windows of each call of the scorer, int64 [calls, B]; -1 in a row that has none.

    Where windows carry a memory, a row reads its documents one after the other, each from its first
    segment to its last; the longest are dealt first, so that rows end near one another, and B is
    the number of documents where they are fewer than `batch_size`.
    """
    W = len(plan.start)
    if plan.segment is None:
        table = np.full(-(-W // batch_size) * batch_size, -1)
        table[:W] = np.arange(W)
        return table.reshape(-1, batch_size)
    opens = np.flatnonzero(plan.first == 1)
    segments = np.diff(opens, append=W)
    rows: list[list[int]] = [[] for _ in range(min(batch_size, len(opens)))]
    for d in np.argsort(-segments, kind="stable"):
        min(rows, key=len).extend(range(opens[d], opens[d] + segments[d]))
    table = np.full((max(map(len, rows)), len(rows)), -1)
    for column, windows in enumerate(rows):
        table[: len(windows), column] = windows
    return table


def position_buckets(longest: int) -> list[tuple[int, int]]:
    """(first, last) position of each bucket: they end at each ⌊2^(k/8)⌋ and at `longest`."""
    ends = {longest}
    for k in range(8 * math.ceil(math.log2(longest)) + 1):
        # exact integers: ⌊2^(k/8)⌋ is the eighth root of 2^k, rounded down
        ends.add(math.isqrt(math.isqrt(math.isqrt(2**k))))
    ends = sorted(end for end in ends if end <= longest)
    return [(before + 1, end) for before, end in zip([0, *ends[:-1]], ends, strict=True)]


@dataclass(frozen=True)
class Point:
    """One pass over the data: a protocol at a length, with its windows or why there are none.

    `status` is that of a point without windows.
    """

    protocol: str
    length: int
    stride: int | None
    plan: Plan | None
    reason: str | None = None
    status: str = "insufficient_data"


def longest_filled(sizes: np.ndarray, lengths: list[int]) -> int | None:
    """ℓmax, the longest of the lengths that a document fills: a window of ℓ inputs takes ℓ + 1 tokens."""
    largest = int(sizes.max(initial=0))
    return max((length for length in lengths if length < largest), default=None)


def points(
    sizes: np.ndarray,
    lengths: list[int],
    protocol: str,
    stride: int | None,
    targets: int,
    train_length: int | None,
) -> list[Point]:
    """The passes of a protocol over documents of `sizes` tokens, in the order of `lengths`."""
    largest = int(sizes.max(initial=0))
    longest = longest_filled(sizes, lengths)

    def point(length: int, stride: int | None, plan: Callable[..., Plan], *rest: int) -> Point:
        if length < largest:
            return Point(protocol, length, stride, plan(sizes, length, *rest))
        need = f"a window of length {length} takes {length + 1} tokens of one document"
        return Point(protocol, length, stride, None, f"{need}, and the longest has {largest}")

    if protocol == "disjoint":
        return [point(length, length, sliding, length) for length in lengths]
    if protocol == "sliding":
        strides = [stride or max(1, length // 2) for length in lengths]
        return [point(length, s, sliding, s) for length, s in zip(lengths, strides, strict=True)]
    if protocol == "position":
        length = longest or max(lengths)
        return [point(length, length, sliding, length)]
    if protocol == "recurrent":
        L = train_length
        reason = (
            f"a segment alone takes the training length, {L} tokens: give a length of {L} or more"
        )
        return [
            Point(protocol, length, L, None, reason, "undefined")
            if length < L
            else point(length, L, recurrent, L)
            for length in lengths
        ]
    stride = stride or longest
    found = [point(length, stride, fixed, longest, stride, targets) for length in lengths]
    if train_length is None:
        return found
    least = train_length + targets - 1  # gives the first target of every block L inputs
    if longest is None or longest < least:
        reason = f"add a length of at least {least}, which gives every target {train_length} tokens"
        if largest <= least:
            reason = f"takes a document of {least + 1} tokens, and the longest has {largest}"
        return [*found, Point("cropped", train_length, stride, None, reason)]
    blocks = fixed(sizes, longest, longest, stride, targets)
    return [*found, Point("cropped", train_length, stride, cropped(blocks, train_length))]
