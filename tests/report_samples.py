"""Files of an evaluation as the report finds them, made up but of the real form."""

import json
import math
import random
from pathlib import Path

LENGTHS = (64, 128, 256, 512, 1024)
TRAINED = 64
HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=hit=1>\"'&amp;"
# nats per token at LENGTHS; None: past the end of a learned table
LOSSES = {
    "sinusoidal": (1.95, 3.36, 3.33, 3.39, 3.27),
    "learned": (1.96, None, None, None, None),
    "alibi": (1.89, 1.88, 1.88, 1.89, 1.89),
    "rope": (1.78, 2.26, 2.81, 3.23, 3.43),
    "pi": (1.78, 2.65, 3.29, 3.44, 3.44),
    "yarn:factor=4": (1.78, 1.90, 1.98, 2.23, 2.55),
}


def record(scheme, length, nll, seed=0, protocol="fixed", **more):
    status = "ok" if nll is not None else "undefined"
    trained_as = "rope" if scheme.startswith(("pi", "yarn")) else scheme
    found = {"run": f"runs/{trained_as}_s{seed}", "scheme": scheme, "seed": seed, "step": 500}
    found |= {"protocol": protocol, "length": length, "stride": 4096, "train_length": TRAINED}
    found |= {"factor": 4.0 if "factor" in scheme else None, "status": status, "reason": None}
    found |= {"tokens_scored": 3360, "windows": 105, "documents": 3, "clusters": "105 windows"}
    found |= {
        "min_context": max(length - 31, 1),
        "seconds": 0.7,
        "config_hash": f"hash{trained_as}",
    }
    nothing = ("nll_sum", "nll", "ci_low", "ci_high", "ppl", "bits_per_byte")
    found |= dict.fromkeys(nothing)
    if nll is None:
        found |= {"tokens_scored": 0, "windows": 0, "documents": 0, "clusters": None}
        found |= {"min_context": None, "reason": f"length {length} is past max_length=64"}
        return found | more
    found |= {"nll": nll, "nll_sum": 3360 * nll, "ci_low": nll - 0.04, "ci_high": nll + 0.05}
    found |= {"ppl": math.exp(nll) if nll < 700 else None, "bits_per_byte": nll / math.log(2)}
    return found | more


def loss_records(seeds=(0,), protocols=("fixed",)):
    found = []
    for scheme, values in LOSSES.items():
        for seed in seeds:
            for protocol in protocols:
                for length, nll in zip(LENGTHS, values, strict=True):
                    shifted = None if nll is None else nll + 0.02 * seed
                    found.append(record(scheme, length, shifted, seed, protocol))
            if "fixed" in protocols:
                found.append(record(scheme, TRAINED, values[0] + 0.01, seed, "cropped"))
    return found


def position_records():
    ends = sorted({int(2 ** (k / 8)) for k in range(81)})
    found = []
    for scheme, values in LOSSES.items():
        for start, end in zip([1, *(e + 1 for e in ends)], ends, strict=False):
            past = max(math.log2(end / TRAINED), 0.0) / 4
            rise = (values[-1] or 0.0) - values[0]
            nll = values[0] + 1.2 / math.sqrt(end) + rise * past
            nll = None if values[-1] is None and end > TRAINED else nll
            found.append(record(scheme, end, nll, 0, "position", start=start, stride=1024))
    return found


def probe_records():
    generator = random.Random(0)
    found = []
    for task in ("passkey", "copy"):
        for scheme in ("alibi", "rope", "yarn:factor=4"):
            for length in LENGTHS:
                past = math.log2(length / TRAINED) / 4
                fall = {"alibi": 0.75, "rope": 1.0, "yarn:factor=4": 0.3}[scheme]
                accuracy = max(0.0, 0.98 - 1.3 * fall * past)
                depths = [
                    [d / 4, min(max(accuracy + (d / 4 - 0.5) * past, 0.0), 1.0), 40]
                    for d in range(5)
                ]
                more = {"accuracy": accuracy, "answers": 200}
                more |= {
                    "accuracy_low": max(accuracy - 0.06, 0),
                    "accuracy_high": min(accuracy + 0.05, 1),
                }
                more |= {"by_depth": depths if task == "passkey" else None}
                nll = 2.0 - 1.9 * accuracy + generator.random() / 10
                found.append(record(scheme, length, nll, 0, f"probe:{task}", **more))
    return found


def statistics(seeds=1):
    names = list(LOSSES)
    about = {"seeds": seeds, "targets": 3360, "clusters": "105 windows"}
    found = []
    for k, length in enumerate(LENGTHS):
        at = {name: LOSSES[name][k] for name in names if LOSSES[name][k] is not None}
        for name, nll in at.items():
            trained_as = "rope" if name.startswith(("pi", "yarn")) else name
            runs = [f"runs/{trained_as}_s{seed}" for seed in range(seeds)]
            bounds = {"ci_low": nll - 0.08, "ci_high": nll + 0.09}
            bounds |= {"seed_low": nll, "seed_high": nll + 0.02 * (seeds - 1)}
            row = {"kind": "curve", "label": name, "scheme": name, "runs": runs, "length": length}
            found.append(row | {"nll": nll} | bounds | about)
        labels = list(at)
        for i, a in enumerate(labels):
            for b in labels[i + 1 :]:
                value = at[a] - at[b]
                verdict = "undecided" if abs(value) < 0.03 else "lower" if value < 0 else "higher"
                row = {"kind": "difference", "length": length, "a": a, "b": b, "difference": value}
                row |= {"ci_low": value - 0.03, "ci_high": value + 0.03, "verdict": verdict}
                found.append(row | about)
        for name, nll in at.items():
            gain = LOSSES[name][0] + 0.01 - nll
            answer = "undecided" if abs(gain) < 0.015 else "yes" if gain > 0 else "no"
            row = {"kind": "context", "label": name, "length": length, "gain": gain}
            row |= {"ci_low": gain - 0.015, "ci_high": gain + 0.015, "answer": answer}
            if length > TRAINED:
                found.append(row | about)
    return found


def diagnostics(layers=4, heads=4):
    generator = random.Random(1)
    found = []
    for scheme in ("alibi", "rope", "yarn:factor=4"):
        trained_as = "rope" if scheme != "alibi" else "alibi"
        for length in LENGTHS:
            for layer in range(layers):
                past = math.log2(length / TRAINED)

                def each(low, high):
                    return [generator.uniform(low, high) for _ in range(heads)]

                row = {"run": f"runs/{trained_as}_s0", "scheme": scheme, "seed": 0}
                row |= {"length": length, "train_length": TRAINED, "layer": layer}
                row |= {"entropy": each(0.3 + 0.05 * past, 0.6 + 0.09 * past)}
                row |= {"mean_distance": each(4 + layer, 0.2 * length)}
                row |= {"beyond": each(0, 0.2 * past), "first": each(0, 0.3)}
                row |= {"largest_logit": each(2, 9 + 2 * past)}
                unseen = min(0.15 * past, 1.0) if scheme == "rope" else 0.02 * past
                row |= {"unseen_angles": None if scheme == "alibi" else unseen}
                found.append(row | {"windows": 16, "rows": 16 * 32})
    return found


def write_lines(path: Path, rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_everything(folder: Path, seeds=(0, 1, 2)) -> list[dict]:
    """statistics.jsonl and diagnostics.jsonl in the folder; the records that go with them."""
    write_lines(folder / "statistics.jsonl", statistics(len(seeds)))
    write_lines(folder / "diagnostics.jsonl", diagnostics())
    protocols = ("fixed", "disjoint", "sliding")
    return loss_records(seeds, protocols) + position_records() + probe_records()


def hostile_files(folder):
    """Records, statistics and diagnostics in which every name would like to be a script."""
    about = {"run": HOSTILE, "config_hash": HOSTILE}
    records = [record(HOSTILE, n, 2.0, **about) for n in (64, 128)]
    records += [record("learned", 256, None, **(about | {"reason": HOSTILE}))]
    probe = {"accuracy": 0.5, "accuracy_low": 0.4, "accuracy_high": 0.6, "answers": 9}
    probe |= {"by_depth": [[0.5, 0.5, 9]], "protocol": f"probe:{HOSTILE}"}
    records += [record(HOSTILE, 64, 2.0, **about, **probe)]
    names = ("label", "a", "b", "scheme")
    rows = [{k: HOSTILE if k in names else v for k, v in r.items()} for r in statistics()]
    write_lines(folder / "statistics.jsonl", rows)
    rows = [row | {"run": HOSTILE, "scheme": HOSTILE} for row in diagnostics()[:4]]
    write_lines(folder / "diagnostics.jsonl", rows)
    return records
