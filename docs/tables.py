"""The tables of the documents, as Markdown, from records."""

import json
from pathlib import Path

import numpy as np

from evaluation.curves import Curve, gather
from evaluation.probes import PREFIX
from evaluation.records import read_records, read_statistics
from evaluation.tables import MARKS
from posenc.__main__ import COLUMNS, matrix


def markdown(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def schemes() -> str:
    """Every scheme and what it claims."""
    rows = [
        (f"`{name}`", *middle, f"[{Path(file).name}]({file})") for name, *middle, file in matrix()
    ]
    return markdown(COLUMNS, rows)


def results(folder: Path) -> str:
    """Nats per token of the fixed targets: a row per curve, a column per length, the cropped line last.

    Of several seeds: their mean, and half the width of its 95 % interval over seeds and text.
    """
    curves = gather(read_records(folder), "fixed", read_statistics(folder))
    lengths = sorted({n for curve in curves for n in (*curve.lengths, *curve.missing)})
    head = ("scheme", "trained at", "seeds", *map(str, lengths), "cropped")
    rows = []
    for curve in curves:
        cropped = "" if curve.cropped is None else f"{curve.cropped:.2f}"
        label = curve.label.replace("|", "\\|")  # which would end the table's cell
        facts = (f"`{label}`", str(curve.train_length), str(curve.seeds))
        rows.append((*facts, *(cell(curve, n) for n in lengths), cropped))
    return markdown(head, rows)


def cell(curve: Curve, length: int) -> str:
    if length not in curve.lengths:
        return MARKS[curve.missing[length]] if length in curve.missing else ""
    at = curve.lengths.index(length)
    figure = f"{curve.nll[at]:.2f}"
    if curve.seeds == 1 or curve.low[at] is None:
        return figure
    return f"{figure} ± {(curve.high[at] - curve.low[at]) / 2:.2f}"


def contexts(folder: Path) -> str:
    """Whether each curve uses more than the training length of context, at each length."""
    rows = [row for row in read_statistics(folder) if row["kind"] == "context"]
    found = {}
    for row in rows:
        found.setdefault(row["label"], {})[row["length"]] = answer(row)
    return by_length(folder, found)


def answer(row: dict) -> str:
    if row["ci_low"] is None:
        return f"{row['gain']:+.3f} {row['answer']}"
    return f"{row['gain']:+.3f} ({row['ci_low']:+.3f} … {row['ci_high']:+.3f}) {row['answer']}"


def differences(folder: Path) -> str:
    """Every curve against ALiBi on the same targets, with the paired 95 % interval."""
    lines = {}
    for row in read_statistics(folder):
        if row["kind"] == "difference" and "alibi" in (row["a"], row["b"]):
            sign = 1 if row["b"] == "alibi" else -1
            label = row["a"] if sign == 1 else row["b"]
            value = sign * row["difference"]
            low, high = sorted((sign * row["ci_low"], sign * row["ci_high"]))
            mark = "lower" if high < 0 else "higher" if low > 0 else "undecided"
            text = f"{value:+.2f} ({low:+.2f} … {high:+.2f}) {mark}"
            lines.setdefault(label, {})[row["length"]] = text
    return by_length(folder, lines)


def by_length(folder: Path, found: dict[str, dict[int, str]]) -> str:
    """A row per curve and a column per length of the cells found; why one is missing, where that is known."""
    lengths = sorted({n for cells in found.values() for n in cells})
    rows = []
    for curve in gather(read_records(folder), "fixed", read_statistics(folder)):
        marks = {n: MARKS[why] for n, why in curve.missing.items()}
        cells = marks | found.get(curve.label, {})
        if any(n in cells for n in lengths):
            rows.append((f"`{curve.label}`", *(cells.get(n, "") for n in lengths)))
    return markdown(("scheme", *map(str, lengths)), rows)


def probes(folder: Path) -> str:
    """Shares of answers wholly right: a row per task and scheme, a column per length."""
    records = read_records(folder)
    lengths = sorted({r["length"] for r in records})
    at = {(r["protocol"], r["scheme"], r["length"]): r for r in records}
    rows = []
    for protocol, scheme in dict.fromkeys((r["protocol"], r["scheme"]) for r in records):
        found = (at.get((protocol, scheme, n)) for n in lengths)
        trained = next(r["train_length"] for r in records if r["protocol"] == protocol)
        name = protocol.removeprefix(PREFIX)
        rows.append((name, str(trained), f"`{scheme}`", *map(share, found)))
    return markdown(("task", "trained at", "scheme", *map(str, lengths)), rows)


def depths(folder: Path, task: str) -> str:
    """One task's shares by depth: a row per scheme and length, a column per depth."""
    records = [r for r in read_records(folder) if r["protocol"] == PREFIX + task and r["by_depth"]]
    names = [f"{depth:g}" for depth, *_ in records[0]["by_depth"]]
    rows = [
        (f"`{r['scheme']}`", str(r["length"]), *(f"{part:.2f}" for _, part, _ in r["by_depth"]))
        for r in sorted(records, key=lambda r: r["length"])
        if r["length"] >= r["train_length"]
    ]
    return markdown(("scheme", "length", *names), rows)


def share(record: dict | None) -> str:
    if record is None:
        return ""
    return f"{record['accuracy']:.2f}" if record["status"] == "ok" else MARKS[record["status"]]


def diagnostics(path: Path) -> str:
    """The RoPE run under three schemes: means over layers and heads, the logit the largest of all."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    shown = {"entropy": ".2f", "mean_distance": ".0f", "beyond": ".2f", "first": ".3f"}
    shown |= {"largest_logit": ".0f", "unseen_angles": ".2f"}
    rows = []
    for scheme, length in dict.fromkeys((r["scheme"], r["length"]) for r in records):
        layers = [r for r in records if (r["scheme"], r["length"]) == (scheme, length)]
        if not layers[0]["run"].endswith("rope"):
            continue
        figures = [f"{average(layers, name):{digits}}" for name, digits in shown.items()]
        rows.append((f"`{scheme}`", str(length), f"{layers[0]['nll']:.2f}", *figures))
    return markdown(("scheme", "length", "nll", *shown), rows)


def average(layers: list[dict], name: str) -> float:
    """One figure over the layers, and over heads where each has its own; of logits the largest."""
    values = [v for layer in layers for v in np.atleast_1d(layer[name])]
    return max(values) if name == "largest_logit" else sum(values) / len(values)


def long_evaluation(path: Path) -> dict[str, str]:
    """The tables of docs/long_evaluation.md: what the compiler plans, and what was resident in runs."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    planned, run = ([r for r in records if r["kind"] == kind] for kind in ("compiled", "run"))
    lengths = sorted({r["length"] for r in planned})
    rows = []
    for curve in dict.fromkeys((r["scheme"], r["tokenizer"]) for r in planned):
        mine = [r for r in planned if (r["scheme"], r["tokenizer"]) == curve]
        at = {r["length"]: mebibytes(r) for r in mine}
        rows.append((f"`{curve[0]}`", curve[1], *(at.get(n, "") for n in lengths)))
    head = ("scheme", "tokens", *(f"MiB at {n:,}" for n in lengths))
    figures = [
        (f"`{r['scheme']}`", f"{r['length']:,}", mebibytes(r), f"{r['processor_seconds']:.0f}")
        for r in run
    ]
    names = ("scheme", "length", "peak resident MiB", "processor seconds")
    return {"compiled": markdown(head, rows), "run": markdown(names, figures)}


def mebibytes(record: dict) -> str:
    return f"{record['bytes'] / 2**20:.0f}"


def performance(folder: Path) -> dict[str, str]:
    """The tables of docs/performance.md, one for each file of records in `folder`, with where it was measured."""
    found = {}
    for path in sorted(folder.glob("*.jsonl")):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        about = ("processor", "cores", "python", "jax", "jaxlib")
        machine = ", ".join(f"{name} {records[0][name]}" for name in about)
        shown = [name for name in records[0] if name not in about and not same(records, name)]
        fixed = [f"{name} {records[0][name]}" for name in records[0] if same(records, name)]
        rows = [tuple(text(record.get(name)) for name in shown) for record in records]
        head = tuple(name.replace("_", " ") for name in shown)
        facts = "; ".join([*(f for f in fixed if f.split()[0] not in about), machine])
        found[path.stem] = f"{markdown(head, rows)}\n*{facts.replace('_', ' ')}*\n"
    return found


def same(records: list[dict], name: str) -> bool:
    """Whether a field of several records is one figure, which belongs under the table."""
    return len(records) > 1 and len({str(r.get(name)) for r in records}) == 1


def text(value) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def reliability(folder: Path) -> dict[str, str]:
    """What came of each kind of fault, and how many faults put into the code the tests have seen."""
    ends = ("continued", "refused", "accepted")
    faults, mutants = (_lines(folder / name) for name in ("faults.jsonl", "mutants.jsonl"))
    rows = []
    for row in faults:
        well = [row.get(end, 0) for end in ends]
        counts = (row["tried"], *well, row["tried"] - sum(well))
        rows.append((row["fault"], *(f"{n:,}" for n in counts)))
    kinds = [(row["room"], str(row["mutants"]), str(row["killed"])) for row in mutants]
    return {
        "faults": markdown(("fault", "tried", *ends, "anything else"), rows),
        "mutants": markdown(("room", "faults put in", "seen by the tests"), kinds),
    }


def _lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]
