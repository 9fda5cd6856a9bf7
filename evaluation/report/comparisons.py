"""Paired differences between curves, and whether a curve uses the extra context."""

import math
from collections.abc import Iterable

from evaluation.report.grids import NOTHING, Cell, grid, scale
from evaluation.report.markup import Markup, breakable, join, tag
from evaluation.tables import counted, span

# The difference that is shaded most, in nats: less, and trifles look grave; more, and one outlier
# pales all others.
LEAST, MOST = 0.1, 1.0
TRIFLE = 0.01  # nats; what is less is decided perhaps, but not shaded
FAINTEST = 0.12  # the shade of the smallest difference that is


def differences(statistics: list[dict]) -> Markup | None:
    """A matrix of paired differences per length, of which the page shows one at a time."""
    rows = [row for row in statistics if row.get("kind") == "difference"]
    if not rows:
        return None
    lengths = sorted({row["length"] for row in rows})
    every = dict.fromkeys(name for row in rows for name in (row["a"], row["b"]))
    # One scale for all lengths, so that their tables compare.
    largest, words = _darkest(row["difference"] for row in rows)
    tables = []
    for length in lengths:
        chosen = [row for row in rows if row["length"] == length]
        pairs = {(row["a"], row["b"]): row for row in chosen}
        labels = list(dict.fromkeys(name for pair in pairs for name in pair))
        body = [
            (breakable(label), [_difference(pairs, label, other, largest) for other in labels])
            for label in labels
        ]
        caption = f"Row minus column at length {length}, nats per token"
        table = join(
            grid(caption, "row − column", labels, body),
            scale(f"row lower by {words}", f"row higher by {words}", "both"),
            tag("p", _facts(chosen), class_="quiet"),
            _absent(f"No figure at length {length}", [n for n in every if n not in labels]),
        )
        tables.append(tag("div", table, data_length=length, class_="choice"))
    options = [
        tag("option", str(length), value=length, selected=length == lengths[-1])
        for length in lengths
    ]
    control = tag(
        "label",
        "Length ",
        tag("select", *options, name="differences-length", data_choose="differences"),
    )
    return tag(
        "div",
        tag("div", control, class_="controls"),
        *tables,
        id="differences-tables",
    )


def _difference(pairs: dict, a: str, b: str, largest: float) -> Cell:
    if a == b:
        return Cell("", kind="quiet")
    row, sign = pairs.get((a, b)), 1
    if row is None:
        row, sign = pairs.get((b, a)), -1
    if row is None:
        return NOTHING
    value = sign * row["difference"]
    low, high = row["ci_low"], row["ci_high"]
    small = ""
    if low is not None and high is not None:
        bounds = sorted((sign * low, sign * high))
        small = f"{_signed(bounds[0])} to {_signed(bounds[1])}"
    if row["verdict"] == "undecided":
        return Cell(_signed(value), small, f"{a} against {b}: undecided", kind="undecided")
    verdict = "lower" if value < 0 else "higher"
    return Cell(_signed(value), small, f"{a} is {verdict} than {b}", _shade(value, largest))


def _darkest(values: Iterable[float]) -> tuple[float, str]:
    """The difference that is shaded most, and how the key says it."""
    largest = max(map(abs, values))
    bound = min(max(largest, LEAST), MOST)
    return bound, f"{bound:.2f}{' or more' if largest > MOST else ''}"


def _shade(value: float, largest: float) -> float | None:
    """The shade of a decided difference: by its size, none below `TRIFLE`."""
    if abs(value) < TRIFLE:
        return None
    return math.copysign(FAINTEST + (1 - FAINTEST) * min(abs(value) / largest, 1), value)


def contexts(statistics: list[dict]) -> Markup | None:
    """Whether each curve uses the context beyond its training length: gain, interval, answer."""
    rows = [row for row in statistics if row.get("kind") == "context"]
    if not rows:
        return None
    lengths = sorted({row["length"] for row in rows})
    every = dict.fromkeys(row["label"] for row in statistics if row.get("kind") == "curve")
    at = {(row["label"], row["length"]): row for row in rows}
    largest, words = _darkest(row["gain"] for row in rows)
    body = [
        (breakable(label), [_context(at.get((label, length)), largest) for length in lengths])
        for label in dict.fromkeys(row["label"] for row in rows)
    ]
    return join(
        grid(
            "Uses the extra context: loss with cropped context minus loss with all of it, in nats",
            "curve",
            [f"{length}" for length in lengths],
            body,
        ),
        scale(f"gains {words}", f"loses {words}", "both"),
        tag("p", _facts(rows), class_="quiet"),
        _absent(
            "No figure with more context than the training length",
            [name for name in every if name not in {row["label"] for row in rows}],
        ),
    )


def _absent(words: str, labels: list[str]) -> Markup | None:
    """Which curves a table does not have, and why."""
    return tag("p", f"{words}: {', '.join(labels)}.", class_="quiet") if labels else None


def _context(row: dict | None, largest: float) -> Cell:
    if row is None:
        return NOTHING
    small = _signed(row["gain"])
    if row["ci_low"] is not None and row["ci_high"] is not None:
        small += f" ({_signed(row['ci_low'])} to {_signed(row['ci_high'])})"
    if row["answer"] == "undecided":
        return Cell("undecided", small, kind="undecided")
    # "no" is also said where the interval only reaches up to zero
    decided = row["answer"] == "yes" or (row["ci_high"] is not None and row["ci_high"] < 0)
    return Cell(row["answer"], small, shade=_shade(-row["gain"], largest) if decided else None)


def _facts(rows: list[dict]) -> str:
    parts = [
        counted((row["targets"] for row in rows), "target"),
        f"clusters: {', '.join(dict.fromkeys(str(row['clusters']) for row in rows))}",
        counted((row["seeds"] for row in rows), "seed"),
    ]
    lengths = span(row["length"] for row in rows)
    return f"Fixed protocol, length {lengths}, {', '.join(parts)}. Small print: 95 % interval."


def _signed(value: float) -> str:
    """Three decimals with a sign and a true minus; zero without."""
    text = f"{value:+.3f}"
    return "0.000" if text[1:] == "0.000" else text.replace("-", "−")
