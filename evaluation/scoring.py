"""`sweep`: the losses of a scoring function at many lengths, as records, bad points included."""

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from evaluation import arguments, protocols
from evaluation.protocols import Plan, Point
from evaluation.statistics import Scored

REASON_CHARACTERS = 300
# what a record says where its status is not ok
NOTHING = {"tokens_scored": 0, "windows": 0, "documents": 0, "clusters": None, "min_context": None}
NOTHING |= dict.fromkeys(("nll_sum", "nll", "ci_low", "ci_high", "ppl", "bits_per_byte"))

Score = Callable[[np.ndarray], np.ndarray]


class Undefined(Exception):
    """Raised by `score` at a length where its model is not defined; the message is the reason."""


class TooLarge(MemoryError):
    """Raised by `score` before a length is run whose size the device does not have; the message is the reason."""


def sweep(
    score: Score,
    documents: Sequence[np.ndarray],
    lengths: Sequence[int],
    protocol: str = "fixed",
    stride: int | None = None,
    targets: int = 32,
    batch_size: int = 8,
    train_length: int | None = None,
    token_bytes: np.ndarray | None = None,
    *,
    details: dict | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict]:
    """Measures `score` at every length under one protocol (see `evaluation/protocols.py`).

    No special token is inserted anywhere, and the first token of a document is never a target. Rows
    are independent: a row holds tokens of one document only, followed by repeats of the document's
    last token where a window reaches past its end. A batch that is not full repeats its last row.
    Fillers are never counted.

    Args:
      score: int32 [B, ℓ+1] -> float [B, ℓ], the nll in nats of tokens[:, 1:]. Within a length the
        shape never changes. If it has a method last(tokens, n) -> float [B, n], the last n columns,
        that is called where no others are scored (fixed, cropped). "recurrent" needs a scorer with
        a memory instead: score.recurrent(ℓ, L), called once for each length, returns two functions,
        initial_state(B) -> state, and step(state, tokens int32 [B, L+1], fresh bool [B]) ->
        (float [B, L], the next state). A row's calls are the segments of a document in order; where
        `fresh`, another document begins and nothing that the row holds may be used. At any other a
        row sees the ℓ - L inputs before.
      documents: integer arrays [n] of token ids.
      lengths: the context lengths ℓ. A repeated one is measured once.
      protocol: "fixed", "disjoint", "sliding", "position" or "recurrent".
      stride: tokens between blocks (fixed: `targets` or more, default the longest filled length) or
        between windows (sliding: 1 … the shortest length, default ℓ // 2, at least 1). The other
        protocols ignore it.
      targets: tokens in a block of `fixed`, at most the shortest length. The other protocols ignore
        it.
      batch_size: B, rows per call of `score`; "recurrent" has as many as there are documents where
        those are fewer.
      train_length: L; `fixed` then ends with one record of protocol "cropped" and length L.
        "recurrent" reads segments of it, and is undefined at lengths below.
      token_bytes: int [V], bytes of text for each token id; without it bits_per_byte is None.
      details: filled, for each point of `fixed` and `cropped` with status ok, with
        details[protocol, length] = {"nll": float64 [n], "clusters": int64 [n]}, the targets in one
        order common to all lengths; cluster ids are those of other evaluations only where the
        targets are.
      progress: called with (tokens fed to `score` so far, tokens to feed in all).

    Returns:
      Records as plain dicts ready for JSON, in the order of `lengths`; for `position`, one per
      bucket of positions, with its first position as `start`. `seconds` is the wall time of the
      pass over the data, which the buckets of `position` share.

    Raises:
      ValueError: an argument is wrong; the message names it, and nothing has been scored.
    """
    given = (score, documents, lengths, protocol, stride, targets, batch_size, train_length)
    records = []
    for found, losses in passes(*given, token_bytes, progress=progress):
        records += found
        if details is not None:
            details.update(losses)
    return records


def passes(
    score: Score,
    documents: Sequence[np.ndarray],
    lengths: Sequence[int],
    protocol: str,
    stride: int | None,
    targets: int,
    batch_size: int,
    train_length: int | None,
    token_bytes: np.ndarray | None,
    *,
    skip: Callable[[Point], bool] = lambda point: False,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[tuple[list[dict], dict]]:
    """`sweep` one pass over the data at a time: its records, and its details. Those to `skip` are left out."""
    lengths, stride = arguments.checked(
        lengths, protocol, stride, targets, batch_size, train_length
    )
    if protocol == "recurrent" and not hasattr(score, "recurrent"):
        raise ValueError("score has no method recurrent(length, segment), as recurrent needs it")
    documents = arguments.checked_documents(documents)
    token_bytes = arguments.checked_token_bytes(token_bytes, documents)
    sizes = np.array([len(document) for document in documents], np.int64)
    points = protocols.points(sizes, lengths, protocol, stride, targets, train_length)

    plans = [point.plan for point in points]
    calls = [None if plan is None else protocols.calls(plan, batch_size) for plan in plans]
    _check_accounting(protocol, plans, calls)
    tails = [0 if plan is None else plan.tail for plan in plans]
    if protocol == "fixed":  # `cropped` is then read by the program of its length
        tails = [max(tails)] * len(tails)
    todo = [index for index, point in enumerate(points) if not skip(point)]
    fed = [0 if plans[i] is None else calls[i].size * plans[i].width for i in todo]
    for number, index in enumerate(todo):
        point = points[index]
        began = time.perf_counter()
        status, reason, scored, details = point.status, point.reason, None, {}
        if point.plan is not None:
            before, total = sum(fed[:number]), sum(fed)
            advance = progress and (lambda done, b=before, t=total: progress(b + done, t))
            called = (documents, point.plan, calls[index], tails[index], advance)
            status, reason, nll = _losses(score, *called)
            if advance:
                advance(fed[number])  # also where the point broke off
            if nll is not None:
                scored = _scored(nll, documents, point.plan, token_bytes)
        if protocol == "position":
            parts = _by_position(point, status, reason, scored)
        else:
            parts = [_record(point, point.length, status, reason, scored)]
            if protocol == "fixed" and parts[0]["status"] == "ok":
                ids = scored.clusters()[0] + _text_number(documents, point.plan)
                details[point.protocol, point.length] = {"nll": scored.nll, "clusters": ids}
        seconds = time.perf_counter() - began
        yield [record | {"seconds": seconds} for record in parts], details


def _check_accounting(
    protocol: str, plans: list[Plan | None], calls: list[np.ndarray | None]
) -> None:
    """Raises unless every window is read once and `fixed` scores the same targets at each length.

    That the windows of the other protocols score every target once, their plans check themselves.
    """
    first = None
    for plan, table in zip(plans, calls, strict=True):
        if plan is None:
            continue
        if not np.array_equal(np.sort(table[table >= 0]), np.arange(len(plan.start))):
            raise RuntimeError(f"a window of length {plan.length} is not read exactly once")
        if protocol != "fixed":
            continue
        targets = np.stack([plan.each_target(plan.document), plan.targets()])
        same, step = first is None or np.array_equal(targets, first), np.diff(targets)
        once = np.all((step[0] > 0) | ((step[0] == 0) & (step[1] > 0)))
        if not (same and once and np.all(plan.stop == plan.start + plan.length + 1)):
            raise RuntimeError(f"length {plan.length} does not score the same targets, each once")
        first = targets


def _losses(
    score: Score,
    documents: list[np.ndarray],
    plan: Plan,
    calls: np.ndarray,
    tail: int,
    advance: Callable[[int], None] | None,
) -> tuple[str, str | None, np.ndarray | None]:
    """(status, reason, nll float64 [n] in the order of `plan`, or None) of one pass.

    Only the last `tail` losses of a window are asked for, where `score` can be asked for fewer.
    """
    nll, filled = np.empty(plan.counts.sum(), np.float64), 0
    place = np.cumsum(plan.counts) - plan.counts  # of each window's first loss in nll
    read, rows = plan.read, calls.shape[1]
    if plan.segment:
        run, columns = _with_memory(score, plan), plan.width
    elif tail < plan.width and hasattr(score, "last"):
        run, columns = (lambda tokens, fresh: score.last(tokens, tail)), tail
    else:
        run, columns = (lambda tokens, fresh: score(tokens)), plan.width
    for number, windows in enumerate(calls, 1):
        live = np.flatnonzero(windows >= 0)
        # a new array each time: the scorer may keep what it is given
        tokens = np.empty((rows, plan.width + 1), np.int32)
        for row, w in zip(live, windows[live], strict=True):
            text = documents[plan.document[w]][read[w] : read[w] + plan.width + 1]
            tokens[row, : len(text)], tokens[row, len(text) :] = text, text[-1]
        tokens[windows < 0] = tokens[live[-1]]
        fresh = (windows < 0) | (plan.first[windows] == 1)
        try:
            block = np.asarray(run(tokens, fresh))
            if block.shape != (rows, columns):
                raise ValueError(f"score returned shape {block.shape}, expected {(rows, columns)}")
            block = block.astype(np.float64)
        except Exception as error:
            return *trouble(error), None
        for row, w in zip(live, windows[live], strict=True):
            # target t stands in column t - begin
            begin = read[w] + 1 + plan.width - columns
            part = block[row, plan.first[w] - begin : plan.stop[w] - begin]
            nll[place[w] : place[w] + len(part)] = part
            filled += len(part)
        if advance is not None:
            advance(number * rows * plan.width)
    if filled != len(nll):
        raise RuntimeError(f"{filled} losses for {len(nll)} targets at length {plan.length}")
    return "ok", None, nll


def _with_memory(score: Score, plan: Plan) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """`score.recurrent` as a function of (tokens, fresh) that keeps its state from call to call."""
    step = state = None

    def run(tokens: np.ndarray, fresh: np.ndarray) -> np.ndarray:
        nonlocal step, state
        if step is None:
            initial_state, step = score.recurrent(plan.length, plan.segment)
            state = initial_state(len(tokens))
        nll, state = step(state, tokens, fresh)
        return nll

    return run


def trouble(error: Exception) -> tuple[str, str]:
    """(status, reason in one line) of an exception raised while scoring."""
    text = " ".join(str(error).split())
    if isinstance(error, Undefined):
        return "undefined", text[:REASON_CHARACTERS] or "the model is not defined at this length"
    if isinstance(error, TooLarge):
        return "out_of_memory", text[:REASON_CHARACTERS]
    reason = f"{type(error).__name__}: {text}"[:REASON_CHARACTERS] if text else type(error).__name__
    full = isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text
    return ("out_of_memory" if full else "failed"), reason


def _scored(
    nll: np.ndarray, documents: list[np.ndarray], plan: Plan, token_bytes: np.ndarray | None
) -> Scored:
    """Lays the losses of a pass beside where each was scored."""
    sizes = None
    if token_bytes is not None:
        runs = zip(plan.document, plan.first, plan.stop, strict=True)
        sizes = np.concatenate([token_bytes[documents[d][first:stop]] for d, first, stop in runs])
    context = plan.targets() - plan.each_target(plan.start)
    window = plan.each_target(np.arange(len(plan.start)))
    return Scored(
        nll, context, plan.each_target(plan.document), window, plan.each_target(plan.group), sizes
    )


def _text_number(documents: list[np.ndarray], plan: Plan) -> int:
    """What to add to cluster ids so that those of other targets are other ids: from the targets' tokens."""
    code = hashlib.sha256()
    for d, first, stop in zip(plan.document, plan.first, plan.stop, strict=True):
        code.update(documents[d][first:stop].astype("<i8").tobytes())
    return int.from_bytes(code.digest()[:5], "little") << 22


def _by_position(
    point: Point, status: str, reason: str | None, scored: Scored | None
) -> list[dict]:
    """One record per bucket of positions, with its first position as `start`."""
    if point.plan is None:
        return [_record(point, point.length, status, reason, None) | {"start": 1}]
    parts = []
    for first, last in protocols.position_buckets(point.length):
        chosen = scored and scored.select((first <= scored.context) & (scored.context <= last))
        parts.append(_record(point, last, status, reason, chosen) | {"start": first})
    return parts


def _record(
    point: Point, length: int, status: str, reason: str | None, scored: Scored | None
) -> dict:
    """A record but for its seconds. `scored` is None unless status is ok."""
    figures = {} if scored is None else scored.figures()
    if scored is not None and not math.isfinite(figures["nll_sum"]):
        bad, n = int(np.sum(~np.isfinite(scored.nll))), len(scored.nll)
        status, reason, figures = "non_finite", f"{bad} of the {n} losses are not finite", {}
    head = {"protocol": point.protocol, "length": length, "stride": point.stride}
    return head | {"status": status, "reason": reason} | NOTHING | figures
