"""Protocol `probe:TASK`: the share of questions of a task that a model answers, against length.

The tasks are those of data/tasks.py. At length ℓ a window is what a training window of ℓ tokens is:
an example of ℓ - 1 tokens from the window's start, and the separator behind it; so ℓ inputs, of which
the last is not needed. Every run and scheme gets the same questions.

An answer is right if each of its tokens is the most probable one given the text before it, which is
what greedy decoding would write: as long as all tokens before were right, it has read the same text.
"""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from data import tasks
from data.tokenizer import Tokenizer
from evaluation.scoring import NOTHING, trouble
from evaluation.statistics import Scored

PREFIX = "probe:"
ANSWERS = 200  # questions at each length
DEPTHS = 5  # 0, 1/4, 1/2, 3/4 and 1, equally often
MEASURED = ("accuracy", "accuracy_low", "accuracy_high")  # probabilities, null without answers


class Predictor(Protocol):
    """What is probed, such as `ModelScore`."""

    def predictions(self, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """int32 [B, ℓ+1] -> nats float [B, ℓ], and bool [B, ℓ]: is tokens[:, 1:] most probable?"""
        ...


def task_name(protocol: str, tokenizer: Tokenizer) -> str:
    """The task of "probe:TASK". ValueError on one there is not, and on tokens that are not bytes."""
    name = protocol.removeprefix(PREFIX)
    if name not in tasks.TASKS:
        raise ValueError(
            f"protocol {protocol!r} is unknown: the tasks are {', '.join(tasks.TASKS)}"
        )
    if tokenizer.name != "byte":
        raise ValueError(
            f"protocol {protocol!r} counts its lengths in bytes: it needs a run with "
            f'data.tokenizer="byte", not "{tokenizer.name}"'
        )
    return name


def probe(
    score: Predictor,
    protocol: str,
    lengths: Sequence[int],
    tokenizer: Tokenizer,
    batch_size: int,
    progress: Callable[[int, int], None] | None = None,
) -> list[dict]:
    """One record for each length, with the fields of `sweep` and five more.

    nll and what belongs to it are over the tokens of the answers, which are the clusters. accuracy:
    share of answers wholly right; accuracy_low, accuracy_high: its 95 % Wilson interval; answers:
    how many; by_depth: a list of [depth, accuracy, answers], or None where a task has no depth.

    Args:
      score: each length is one shape [batch_size, ℓ+1].
      progress: called with (tokens read so far, tokens in all).

    A length too short or too long for the task's frame is `insufficient_data`. Trouble inside
    `score` is a record as in `sweep`. ValueError as in `task_name`.
    """
    name = task_name(protocol, tokenizer)
    calls = -(-ANSWERS // batch_size) * batch_size
    records, read = [], 0
    for length in lengths:
        began = time.perf_counter()
        record = _point(score, name, length, tokenizer, batch_size)
        head = {"protocol": protocol, "length": length, "stride": None}
        records.append(head | record | {"seconds": time.perf_counter() - began})
        read += calls * length
        if progress is not None:
            progress(read, calls * sum(lengths))
    return records


def _point(score, name: str, length: int, tokenizer: Tokenizer, batch_size: int) -> dict:
    task, size = tasks.TASKS[name], length - 1
    if not task.shortest <= size <= task.longest:
        bound = f"at least {task.shortest}" if size < task.shortest else f"at most {task.longest}"
        reason = f"an example of {name} has {bound} tokens, and one token follows it"
        return _record("insufficient_data", reason, None, None)
    tokens, first, depths = _windows(name, length, tokenizer)
    try:
        nll, right = _predictions(score, tokens, batch_size)
    except Exception as error:
        return _record(*trouble(error), None, None)
    columns = slice(first - 1, size - 1)  # column t - 1 is about token t
    nll, right = nll[:, columns], right[:, columns].all(axis=1)
    if not np.isfinite(nll).all():
        bad = int(np.sum(~np.isfinite(nll)))
        return _record("non_finite", f"{bad} of the {nll.size} losses are not finite", None, None)
    question = np.repeat(np.arange(len(nll)), nll.shape[1])
    context = np.tile(np.arange(first, size), len(nll))
    sizes = tokenizer.token_bytes[tokens[:, first:size]].reshape(-1)
    scored = Scored(nll.reshape(-1), context, question, question, question, sizes)
    return _record("ok", None, scored, _accuracy(right, depths if task.has_depth else None))


def _windows(name: str, length: int, tokenizer: Tokenizer) -> tuple[np.ndarray, int, np.ndarray]:
    """(tokens int32 [ANSWERS, ℓ+1], the index of an answer's first token, depths [ANSWERS])."""
    # the token after the example, and the last target, which is not scored
    tokens = np.full((ANSWERS, length + 1), tokenizer.separator, np.int32)
    depths = np.empty(ANSWERS)
    for row, (example, depth) in enumerate(tasks.questions(name, length - 1, ANSWERS, DEPTHS)):
        tokens[row, : length - 1] = tokenizer.encode(example.prompt + example.answer)
        depths[row] = depth
    return tokens, len(example.prompt), depths


def _predictions(
    score: Predictor, tokens: np.ndarray, batch_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """(nll float64, right bool), each [n, ℓ], of the n windows; a batch is filled up with its last row."""
    shape = (batch_size, tokens.shape[1] - 1)
    losses, hits = [], []
    for start in range(0, len(tokens), batch_size):
        rows = np.minimum(np.arange(start, start + batch_size), len(tokens) - 1)
        nll, right = map(np.asarray, score.predictions(tokens[rows]))
        if nll.shape != shape or right.shape != shape:
            raise ValueError(
                f"predictions returned shapes {nll.shape} and {right.shape}, expected {shape}"
            )
        losses.append(nll.astype(np.float64))
        hits.append(right)
    return np.concatenate(losses)[: len(tokens)], np.concatenate(hits)[: len(tokens)]


def _accuracy(right: np.ndarray, depths: np.ndarray | None) -> dict:
    from scipy.stats import binomtest

    good, count = int(right.sum()), len(right)
    interval = binomtest(good, count).proportion_ci(0.95, method="wilson")
    measured = (good / count, float(interval.low), float(interval.high))
    return dict(zip(MEASURED, measured, strict=True)) | {
        "answers": count,
        "by_depth": None
        if depths is None
        else [
            [float(depth), float(right[depths == depth].mean()), int(np.sum(depths == depth))]
            for depth in np.unique(depths)
        ],
    }


def _record(status: str, reason: str | None, scored: Scored | None, accuracy: dict | None) -> dict:
    nothing = NOTHING | dict.fromkeys(MEASURED) | {"answers": 0, "by_depth": None}
    found = {} if scored is None else scored.figures() | accuracy
    return {"status": status, "reason": reason} | nothing | found


def is_probe(record: dict) -> bool:
    return record["protocol"].startswith(PREFIX)
