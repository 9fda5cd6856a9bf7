"""Memory and open files of a process that goes on for long."""

import os
import statistics
import time
from collections.abc import Iterator

import numpy as np
from runs import Outcome, Place

MAY_GROW = 24 * 2**20  # bytes from the first half to the last quarter: allocators are not tidy
MAY_OPEN = 4  # files
# What JAX and XLA keep of a program that they compiled, when the program itself is gone: 0.8 MiB measured.
COMPILED_LEAVES = 2**20


def resident(pid: int) -> int:
    """Bytes of memory in use."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def flat(samples: list[tuple[int, int]], may_grow: int = MAY_GROW) -> tuple[str, str]:
    """Whether memory and files of the last quarter are those of the second."""
    quarter = len(samples) // 4
    second, last = samples[quarter : 2 * quarter], samples[-quarter:]
    (memory, then_memory), (count, then_count) = (
        (statistics.median(s[i] for s in last), statistics.median(s[i] for s in second))
        for i in (0, 1)
    )
    grown = f"{then_memory / 2**20:.0f} to {memory / 2**20:.0f} MiB, {then_count:g} to {count:g} open files"
    fits = memory - then_memory <= may_grow and count - then_count <= MAY_OPEN
    return ("continued" if fits else "grown"), grown


def training(place: Place, steps: int) -> Iterator[Outcome]:
    """Many steps with frequent saves, evaluations and logs."""
    often = {"train__steps": steps, "train__save_every": 20, "train__eval_every": 10}
    place.forks.start(place.words(**often, train__log_every=5))
    samples, began = [], time.perf_counter()
    newest = place.workdir / "checkpoints"
    while time.perf_counter() - began < 3600:
        ended = place.forks.reply(0.2)
        if ended is not None:
            break
        if newest.exists():
            samples.append((resident(place.forks.pid), open_files(place.forks.pid)))
    verdict, grown = flat(samples)
    if not ended or ended[0]:
        verdict, grown = "lost", (place.forks.folder / "stderr").read_text()[-1000:]
    yield Outcome("long run", f"{steps} steps of training", verdict, grown)


def sweep(lengths: int) -> Iterator[Outcome]:
    """Many lengths through evaluation.sweep, with a score that is none and with a tiny model."""
    import evaluation
    import models
    from configs import smoke
    from evaluation.model import ModelScore

    c = smoke.get_config().model.to_dict() | {"d_model": 8, "num_layers": 1, "d_ff": 8}
    derived = {"position": "rope", "vocab_size": 257, "train_length": 16}
    config = models.ModelConfig(**c, **derived)
    model = ModelScore(config, "rope", models.split(models.build(config, 0))[1])
    document = np.arange(2 * lengths + 64, dtype=np.int32) % 257
    for name, score in {"a stub": lambda t: np.ones(t[:, 1:].shape), "a model": model}.items():
        samples = []

        def watched(tokens, score=score, samples=samples):
            samples.append((resident(os.getpid()), open_files(os.getpid())))
            return score(tokens)

        asked = list(range(8, 8 + lengths))
        found = evaluation.sweep(watched, [document], asked, targets=8, stride=64, batch_size=8)
        ok = [r["status"] for r in found].count("ok") == lengths
        compiled = lengths // 2 if score is model else 0  # from the second quarter to the last
        verdict, grown = flat(samples, MAY_GROW + compiled * COMPILED_LEAVES)
        yield Outcome("long run", f"{lengths} lengths of {name}", verdict if ok else "lost", grown)
