"""One curve from its run to its records: measured point by point, each added to what OUT holds."""

import dataclasses
import hashlib
import sys
import time
from collections.abc import Mapping, Sequence

import numpy as np
from tqdm import tqdm

from data import Tokenizer
from evaluation import diagnostics, protocols
from evaluation.collection import Collection, Measured
from evaluation.model import ModelScore
from evaluation.probes import PREFIX, probe
from evaluation.scoring import Undefined, passes
from models import ModelConfig

BATCH_SIZE = 32  # windows per call of the model, which divides long ones further


@dataclasses.dataclass
class Task:
    """One curve to measure: a run under one scheme, by one protocol."""

    about: dict  # what all of its records say alike, the run and the scheme among it
    model_config: ModelConfig  # as it was trained
    tokenizer: Tokenizer
    score: ModelScore  # one for all protocols, with its compiled programs
    protocol: str
    lengths: list[int]
    stride: int | None
    targets: int
    documents: Sequence[np.ndarray] = ()  # what is scored; probes make their own questions

    @property
    def title(self) -> str:
        return f"{self.about['run']}  {self.about['scheme']}"

    def read(self, documents: Sequence[np.ndarray], text: str) -> None:
        """Take what is scored, with its fingerprint."""
        self.documents = documents
        self.about["text"] = text
        if self.protocol == "fixed":
            sizes = np.array([len(document) for document in documents], np.int64)
            longest = protocols.longest_filled(sizes, self.lengths)
            self.about |= {"targets": self.targets, "longest": longest}


def weights_fingerprint(params: Mapping) -> str:
    """16 hex digits that tell these parameters from others."""
    code = hashlib.sha256()
    for name in sorted(params):
        array = np.asarray(params[name])
        code.update(f"{name} {array.dtype} {array.shape} ".encode())
        code.update(np.ascontiguousarray(array).view(np.uint8).data)
    return code.hexdigest()[:16]


def text_fingerprint(documents: Sequence[np.ndarray]) -> str:
    """16 hex digits that tell these documents, as tokens, from others."""
    code = hashlib.sha256()
    for document in documents:
        code.update(f"{len(document)} ".encode())
        code.update(np.asarray(document).astype("<i4").data)
    return code.hexdigest()[:16]


def measure(task: Task, found: Collection) -> None:
    """Add the points of one curve that OUT does not hold yet, and say in a line what was done."""
    before = found.measured_before(task.about)
    kept, seconds = [], []
    shape = {"unit": "token", "unit_scale": True, "leave": False}
    bar = tqdm(desc=f"{task.title}  {task.protocol}", disable=not sys.stderr.isatty(), **shape)

    def advance(done: int, total: int) -> None:
        bar.total = total
        bar.update(done - bar.n)

    with bar:
        for records, losses in points(task, before, kept, advance):
            found.add([task.about | r | {"factor": factor(task, r)} for r in records], losses)
            seconds += [r["seconds"] for r in records]
    found.write()
    shared = task.protocol == "position"  # one pass, whose seconds every bucket carries
    took = max(seconds, default=0) if shared else sum(seconds)
    parts = []
    if seconds or not kept:
        which = "records from one pass" if shared else "records"
        parts.append(f"{len(seconds)} {which} in {took:.1f} s")
    if kept:
        parts.append(f"kept: {len(kept)} measured before")
    print(f"{task.title}  {task.protocol}: {', '.join(parts)}", file=sys.stderr, flush=True)


def points(task: Task, before: Measured, kept: list[dict], advance):
    """(records, losses of their targets) of each point that was not measured before; `kept` gets the others."""

    def skip(point) -> bool:
        there = before.holds(point)
        kept.extend(there)
        return bool(there)

    if not task.protocol.startswith(PREFIX):
        yield from passes(
            task.score,
            task.documents,
            task.lengths,
            task.protocol,
            task.stride,
            task.targets,
            BATCH_SIZE,
            task.about["train_length"],
            task.tokenizer.token_bytes,
            skip=skip,
            progress=advance,
        )
        return
    for length in task.lengths:
        if not skip(protocols.Point(task.protocol, length, None, None)):
            yield (
                probe(task.score, task.protocol, [length], task.tokenizer, BATCH_SIZE, advance),
                {},
            )


def factor(task: Task, record: dict) -> float | None:
    """The extension factor that a record was measured with."""
    # the positions of one pass were all read at its length, which is their stride
    length = record["stride"] if task.protocol == "position" else record["length"]
    return task.score.factor(length) if length else None


def diagnose(task: Task, found: Collection) -> None:
    """Add what attention does in a few windows of a fixed curve, at each length with a figure."""
    began, rows = time.perf_counter(), []
    about = {name: task.about[name] for name in ("run", "scheme", "seed")}
    lengths = found.without_diagnostics(task.about)
    if not lengths:
        return
    chosen = diagnostics.windows(task.documents, task.lengths, task.stride, task.targets)
    for length in (length for length in task.lengths if length in lengths):
        try:
            figures = diagnostics.diagnose(
                task.score, task.model_config, chosen[length], task.targets
            )
        except (Undefined, MemoryError, RuntimeError) as error:  # jax's own are RuntimeErrors
            reason = " ".join(str(error).split())[:300]
            print(f"note: {task.title}: no diagnostics at {length}: {reason}", file=sys.stderr)
            continue
        rows += [about | row for row in figures]
    found.add_diagnostics(rows)
    seconds = time.perf_counter() - began
    print(f"{task.title}  diagnostics: {seconds:.1f} s", file=sys.stderr, flush=True)
