"""Probes: how many answers are wholly right, by length, and by depth where a task has one."""

from evaluation.captions import coinciding
from evaluation.curves import Curve, gather
from evaluation.probe_plot import as_loss
from evaluation.report.grids import NOTHING, Cell, grid, named, scale
from evaluation.report.looks import looks
from evaluation.report.losses import legend_note
from evaluation.report.markup import Markup, join, tag
from evaluation.report.measured import among
from evaluation.tables import MARKS, counted

PREFIX = "probe:"


def tasks(records: list[dict]) -> list[str]:
    """The protocols of probes, in the order met."""
    return list(dict.fromkeys(r["protocol"] for r in records if r["protocol"].startswith(PREFIX)))


def views(records: list[dict]) -> list[dict]:
    """The data of the plots: one view per task."""
    found = []
    for task in tasks(records):
        curves = _curves(records, task)
        appearance = looks([curve.scheme for curve in curves])
        shares = gather([as_loss(r) for r in records if r["protocol"] == task], task)
        plain, hidden = [], coinciding(shares, 1.0)
        for curve, look in zip(curves, appearance, strict=True):
            points = _points(records, task, curve)
            plain.append(
                {
                    "label": curve.label,
                    "note": legend_note(curve.note(), hidden.get(curve.label)),
                    "trained": curve.train_length,
                    **look,
                    "points": [_plain(n, point) for n, point in points.items()],
                    "cropped": None,
                    "depths": [[n, p["depths"]] for n, p in points.items() if p["depths"]],
                }
            )
        found.append(
            {
                "name": task.removeprefix(PREFIX),
                "reading": "Share of answers that are wholly right.",
                "facts": _facts(records, task, curves),
                "trained": sorted({c.train_length for c in curves if c.train_length}),
                "curves": plain,
            }
        )
    return found


def table(records: list[dict], task: str) -> Markup:
    """The accuracies of one task: curves against lengths."""
    curves = _curves(records, task)
    trained = {c.train_length for c in curves}
    lengths = sorted({r["length"] for r in records if r["protocol"] == task})
    rows = []
    for curve in curves:
        points = _points(records, task, curve)
        runs = among(curve)
        cells = [_cell(points.get(n)) for n in lengths]
        rows.append((named(curve.label, runs, "\n".join(map(str, curve.runs))), cells))
    return join(
        grid(
            f"{task.removeprefix(PREFIX)}: share of answers wholly right",
            named("curve", "run"),
            [f"{n}*" if n in trained else str(n) for n in lengths],
            rows,
        ),
        scale("0 %", "100 %", "good"),
        tag("p", _facts(records, task, curves), class_="quiet"),
    )


def _curves(records: list[dict], task: str) -> list[Curve]:
    return gather([r for r in records if r["protocol"] == task], task)


def _points(records: list[dict], task: str, curve: Curve) -> dict[int, dict]:
    """length -> accuracy, low, high, what the bounds are, answers, and [depth, accuracy] pairs."""
    at: dict[int, list[dict]] = {}
    for r in records:
        if r["protocol"] == task and r["scheme"] == curve.scheme and r.get("run") in curve.runs:
            at.setdefault(r["length"], []).append(r)
    found = {}
    for length, group in sorted(at.items()):
        bad = next((r for r in group if r["status"] != "ok"), None)
        if bad is not None:
            why = {"status": bad["status"], "reason": bad.get("reason") or bad["status"]}
            found[length] = {"accuracy": None, "depths": [], **why}
            continue
        values = [r["accuracy"] for r in group]
        low, high, interval = group[0]["accuracy_low"], group[0]["accuracy_high"], "95 % interval"
        if len(values) > 1:
            low, high, interval = min(values), max(values), f"range of {len(values)} seeds"
        found[length] = {
            "accuracy": sum(values) / len(values),
            "low": low,
            "high": high,
            "interval": "" if low is None else interval,
            "answers": sum(r["answers"] for r in group),
            "depths": _depths(group),
        }
    return found


def _depths(records: list[dict]) -> list[list[float]]:
    """[depth, accuracy, answers], the seeds' answers taken together."""
    right: dict[float, list[float]] = {}
    for r in records:
        for depth, accuracy, answers in r.get("by_depth") or []:
            sums = right.setdefault(depth, [0.0, 0])
            sums[0] += accuracy * answers
            sums[1] += answers
    return [
        [depth, float(f"{hits / count:.4g}"), count]
        for depth, (hits, count) in sorted(right.items())
        if count
    ]


def _plain(length: int, point: dict) -> list:
    if point["accuracy"] is None:
        return [length, None, None, None, None, "", "", point["reason"]]
    figures = [point[name] for name in ("accuracy", "low", "high")]
    figures = [None if value is None else float(f"{value:.6g}") for value in figures]
    return [length, *figures, None, point["interval"], f"{point['answers']} answers", ""]


def _cell(point: dict | None) -> Cell:
    if point is None:
        return NOTHING
    if point["accuracy"] is None:
        return Cell(MARKS[point["status"]], title=point["reason"], kind="missing")
    small = "" if point["low"] is None else f"{100 * point['low']:.0f} – {100 * point['high']:.0f}"
    title = f"{point['interval']}; {point['answers']} answers"
    value = point["accuracy"]
    return Cell(f"{100 * value:.0f} %", small, title, -value)


def _facts(records: list[dict], task: str, curves: list[Curve]) -> str:
    answered = [r for r in records if r["protocol"] == task and r["status"] == "ok"]
    parts = [f"Protocol {task}"]
    if answered:
        parts.append(f"{counted((r['answers'] for r in answered), 'answer')} per run and length")
    parts.append(f"{counted((c.seeds for c in curves), 'seed')} per curve")
    return f"{', '.join(parts)}. Intervals: 95 %, or the range over seeds."
