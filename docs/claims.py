"""The figures that documents state in prose, each from the record or the formula it comes from.

A claim is a sentence's words with `{…}` where its figures stand. `docs/build.py` finds the words,
whatever stands there now, and puts the figures in; `--check` fails where they differ. A decimal
figure in prose that no claim covers fails in tests/test_lab_book.py.
"""

import functools
import json
import math
import re
from pathlib import Path

import jax
import numpy as np
from tables import average

import models
from configs import base, probe
from evaluation.curves import Curve, gather
from evaluation.model import BLOCK_BYTES
from evaluation.records import read_records, read_statistics
from training.config import RunConfig

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS / "results"
PI, YARN = (f"{name}:factor=4,original_length=128" for name in ("pi", "yarn"))
FIELD = r"\{[^}]*\}"
NUMBER = r"([-+−]?\d[\d,]*(?:\.\d+)?)"

Claims = list[tuple[str, tuple]]  # (words with fields, their figures)


@functools.cache
def claims() -> dict[str, Claims]:
    """document -> its claims."""
    return {
        "docs/results/README.md": published() + every_scheme(),
        "docs/probes.md": probes(),
        "docs/statistics.md": statistics(),
        "docs/performance.md": performance(),
        "docs/long_evaluation.md": long_evaluation(),
        "docs/diagnostics.md": diagnostics(),
        "README.md": [("models of {:.1f} M parameters trained on", (demo_size(),))],
    }


def sentence(words: str) -> str:
    """The pattern of these words with any figures in their fields, wherever the lines break."""
    literal = (re.escape(part) for part in re.split(FIELD, words))
    return re.sub(r"(?:\\ |\s)+", r"\\s+", NUMBER.join(literal))


def state(document: str, text: str, words: str, figures: tuple) -> str:
    """The text with these figures in the sentence of these words. ValueError if it is not there once."""
    found = list(re.finditer(sentence(words), text))
    if len(found) != 1:
        raise ValueError(f"{document} says {words!r} {len(found)} times, and should say it once")
    fields = re.findall(FIELD, words)
    written = [field.format(figure) for field, figure in zip(fields, figures, strict=True)]
    for group, figure in reversed(list(enumerate(written, 1))):
        text = text[: found[0].start(group)] + figure + text[found[0].end(group) :]
    return text


def curves(folder: str) -> dict[str, Curve]:
    path = RESULTS / folder
    found = gather(read_records(path), "fixed", read_statistics(path))
    return {curve.label: curve for curve in found}


def published() -> Claims:
    records, rows = (read(RESULTS / "published") for read in (read_records, read_statistics))
    found = curves("published")
    first = next(r for r in records if r["scheme"] == "rope")
    tuned = next(r for r in records if r["scheme"] == PI)
    L, longest = first["train_length"], max(r["length"] for r in records)
    used = [r for r in rows if r["kind"] == "context" and r["label"] == "alibi"]
    ntk = [r["nll"] for r in records if (r["scheme"], r["length"]) == ("ntk", 2 * L)]
    gains = [
        at(found["ntk"], n) - at(found["yarn"], n) for n in found["yarn"].lengths if n >= 4 * L
    ]
    width = found["rope"].high[1] - found["rope"].low[1]
    better = at(found["alibi"], L) - at(found["rope"], L)
    worse = at(found["sinusoidal"], L) - at(found["alibi"], L)
    block = first["length"] - first["min_context"] + 1
    tuned_for = (tuned["step"], tuned["train_length"])
    lower = at(found[PI], tuned["train_length"]) - at(found[YARN], tuned["train_length"])
    return [
        ("models of {:.1f} M parameters (D 128", (demo_size(),)),
        ("Models of {:.1f} M parameters after two million", (demo_size(),)),
        ("a block of {} every {:,} bytes of three", (block, first["stride"])),
        ("{:,} steps of 2,048 bytes in windows of {}. PI, NTK", (first["step"], L)),
        ("fine-tunes of the RoPE runs, {} steps at {}, the recipes", tuned_for),
        ("its loss at {} training lengths is that at one", (longest // L,)),
        (
            "(the interval is {:.3f} nats wide)",
            (max(r["ci_high"] - r["ci_low"] for r in used),),
        ),
        ("better again, by {:.2f} nats and more from {} on", (min(gains), 4 * L)),
        ("* {} steps at {} mend PI", tuned_for),
        ("YaRN's fine-tune of the same steps ends {:.2f} nats lower there", (lower,)),
        (
            "* RoPE is {:.2f} nats better than ALiBi at the training length, and sinusoidal worse "
            "than ALiBi by {:.2f}",
            (better, worse),
        ),
        ("(RoPE at {}: ± {:.2f})", (2 * L, width / 2)),
        (
            "NTK at {} would have passed for anything from {:.2f} to {:.2f}",
            (2 * L, min(ntk), max(ntk)),
        ),
    ]


def every_scheme() -> Claims:
    first = read_records(RESULTS / "all_schemes")[0]
    figures = (first["step"], first["train_length"])
    return [("One seed, {} steps of 2,048 bytes in windows of {}.", figures)]


def probes() -> Claims:
    records = read_records(RESULTS / "probes")
    at = {(r["protocol"].removeprefix("probe:"), r["scheme"], r["length"]): r for r in records}
    share = {key: r["accuracy"] for key, r in at.items()}
    asked = at["copy", "rope", 32]
    size = size_of(probe.get_config("copy"))
    return [
        ("is a model of {:.1f} M parameters", (size,)),
        ("of one seed and models of {:.1f} M parameters", (size,)),
        ("there are {} questions, the same for every run", (asked["answers"],)),
        (
            "each trained for {:,} steps of 64 windows, one seed; the share of {} questions",
            (asked["step"], asked["answers"]),
        ),
        # arithmetic: 0.99 to the power of the letters
        (
            "gets {:.2f} of 15-letter answers, and {:.2f} of those with 127",
            (0.99**15, 0.99**127),
        ),
        (
            "at eight training lengths ({:.2f} at {}, and it loses",
            (share["passkey", "alibi", 256], 256),
        ),
        ("ALiBi is still right at twice the length ({:.2f})", (share["recall", "alibi", 64],)),
        ("ALiBi copies {:.2f} of what is twice as long", (share["copy", "alibi", 64],)),
        ("it goes furthest: {:.2f} at twice", (share["sort", "nope", 64],)),
        ("({:.2f} under RoPE at its own training length)", (share["addition", "rope", 16],)),
    ]


def statistics() -> Claims:
    from scipy.special import ndtri, stdtrit

    def stretch(C: int) -> float:
        return math.sqrt(C / (C - 1)) * stdtrit(C - 1, 0.975) / ndtri(0.975)

    three = "which with 3 seeds is {:.1f} standard errors"
    words = "{:.1f} times with 3 clusters, {:.2f} times with 8, {:.2f} times with 40"
    return [(words, (stretch(3), stretch(8), stretch(40))), (three, (stdtrit(2, 0.975),))]


def performance() -> Claims:
    step, cost, speed = (
        lines(DOCS / "performance" / f"{name}.jsonl")
        for name in ("train_step", "scheme_cost", "evaluation_speed")
    )
    windows = {r["protocol"]: r["windows"] for r in speed}
    return [
        ("{:,} byte tokens in windows of 128; D 128", (step[0]["tokens"],)),
        ("over that of `nope`, {:,} tokens in windows of 128", (cost[0]["tokens"],)),
        (
            "both reading {} blocks of `fixed` at five lengths and their {:,} cropped windows",
            (windows["fixed"], windows["cropped"]),
        ),
    ]


def long_evaluation() -> Claims:
    """From the budget of a block, and the points of the demo: a program for each length and kind."""
    heads, rows, float32 = 4, 16, 4
    found = curves("seven_schemes")
    own = sum(len(found[name].lengths) for name in ("sinusoidal", "learned", "alibi"))
    family = [len(found[name].lengths) for name in ("rope", "pi", "ntk", "dynamic_ntk", "yarn")]
    tuned = len(found["pi:factor=4,original_length=64"].lengths)
    names = "`rope`, `pi`, `ntk`, `dynamic_ntk`, `yarn`"
    return [
        ("so from ℓ = {:,} on (4 heads)", (BLOCK_BYTES // (float32 * heads * rows),)),
        ("all pairs are computed, {:.0f} % with eight", (100 * (8 + 1) / (2 * 8),)),
        ("| sinusoidal, learned, ALiBi | {} | {} |", (own, own)),
        (f"| RoPE evaluated as {names} | {{}} | {{}} |", (sum(family), max(family))),
        ("| the PI fine-tune | {} | {} |", (tuned, tuned)),
    ]


def diagnostics() -> Claims:
    records = lines(DOCS / "diagnostics.jsonl")
    at = {(r["scheme"], r["length"]): [] for r in records}
    for r in records:
        at[r["scheme"], r["length"]].append(r)
    beyond = np.array([layer["beyond"] for layer in at["alibi", 1024]])  # [layers, heads]
    slopes = beyond.mean(axis=0)
    back = {key: average(layers, "mean_distance") for key, layers in at.items()}
    # the last 32 of 1024 rows, row i of which sees i keys before its own
    even = np.arange(1024 - 32, 1024).mean() / 2
    pairs = 16 * average(at["rope", 1024], "unseen_angles")
    slope_words = (
        "give {:.2f}, {:.2f}, {:.2f} and {:.2f} beyond 64 tokens in every layer to within {:.2f}"
    )
    pi_words = "doubles with the length, {:.0f}, {:.0f}, {:.0f}, {:.0f}, {:.0f}:"
    return [
        (slope_words, (*slopes, np.abs(beyond - slopes).max())),
        ("one function: it reads {:.0f} tokens back", (back["rope", 64],)),
        ("* **rope**: {:.0f} of 16 pairs", (pairs,)),
        (
            "({:.0f} tokens back at 1024, where even attention would be at {:.0f})",
            (back["rope", 1024], even),
        ),
        ("the entropy rises to {:.2f} and", (average(at["rope", 1024], "entropy"),)),
        (pi_words, tuple(back["pi", n] for n in (64, 128, 256, 512, 1024))),
    ]


def demo_size() -> float:
    return size_of(base.get_config())


def size_of(config) -> float:
    """Millions of parameters of the byte model of a config."""
    model = RunConfig.from_config(config).model_config(vocab_size=257)
    shapes = jax.eval_shape(lambda: models.split(models.build(model, 0))[1])
    return sum(math.prod(shape.shape) for shape in jax.tree.leaves(shapes)) / 1e6


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def at(curve: Curve, length: int) -> float:
    """Nats of a curve at a length."""
    return curve.nll[curve.lengths.index(length)]
