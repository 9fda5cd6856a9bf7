"""What attention does at each length: heat maps of layers and heads, and their averages."""

import math

from evaluation.report.grids import NOTHING, Cell, grid, named, scale, shade, shades
from evaluation.report.markup import Markup, join, tag
from evaluation.tables import counted, span

# field -> its name, what it means
FIGURES = {
    "entropy": (
        "entropy",
        "Attention entropy divided by the logarithm of the visible keys: 1 is even attention to "
        "all of them, 0 attention to one.",
    ),
    "mean_distance": (
        "mean distance",
        "How many tokens back attention looks, averaged by its weights.",
    ),
    "beyond": (
        "beyond training",
        "Attention on keys further back than the training length.",
    ),
    "first": (
        "first tokens",
        "Attention on the first tokens of the window, where attention sinks are.",
    ),
    "largest_logit": ("largest logit", "The largest logit before the softmax."),
    "unseen_angles": (
        "unseen angles",
        "Share of the rotary pairs whose largest angle leaves the range seen in training.",
    ),
}


def views(rows: list[dict]) -> dict | None:
    """The data of the heat maps: per run and scheme and figure, layers x heads at each length."""
    if not rows:
        return None
    readings = []
    for (run, scheme), mine in _readings(rows).items():
        figures = {}
        for field in FIGURES:
            maps = {length: _layers(group, field) for length, group in _by_length(mine).items()}
            if any(v is not None for layers in maps.values() for heads in layers for v in heads):
                figures[field] = [[length, layers] for length, layers in maps.items()]
        trained = mine[0]["train_length"]
        readings.append(
            {
                "label": _label(run, scheme, rows),
                "trained": trained,
                "facts": f"{_facts(mine)} Training length {trained}.",
                "figures": figures,
            }
        )
    ranges = {}
    for field in FIGURES:
        values = [v for row in rows for v in _heads(row, field) if v is not None]
        if values:
            ranges[field] = [min(values), max(values)]
    figures = {field: list(FIGURES[field]) for field in ranges}
    return {"readings": readings, "figures": figures, "ranges": ranges}


def averages(rows: list[dict]) -> Markup:
    """A table per figure: its mean over layers and heads, of each run and scheme at each length."""
    tables = []
    lengths = sorted({row["length"] for row in rows})
    for field, (name, meaning) in FIGURES.items():
        body = []
        for (run, scheme), mine in _readings(rows).items():
            means = {}
            for length, group in _by_length(mine).items():
                values = [v for row in group for v in _heads(row, field) if v is not None]
                if values:
                    means[length] = sum(values) / len(values)
            body.append((named(scheme, _last(run), str(run)), means))
        known = [value for _, means in body for value in means.values()]
        if not known:
            continue
        low, high = shades(known, max(map(abs, known)) / 10, math.inf)  # trifles look alike
        cells = [
            (
                head,
                [
                    Cell(f"{means[n]:.3g}", shade=shade(means[n], low, high))
                    if n in means
                    else NOTHING
                    for n in lengths
                ],
            )
            for head, means in body
        ]
        caption = f"{name.capitalize()}, mean over layers and heads"
        tables.append(grid(caption, named("scheme", "run"), [str(n) for n in lengths], cells))
        tables.append(scale(f"{low:.3g}", f"{high:.3g}"))
        tables.append(tag("p", meaning, class_="quiet"))
    return join(*tables, tag("p", _facts(rows), class_="quiet"))


def _readings(rows: list[dict]) -> dict[tuple, list[dict]]:
    found: dict[tuple, list[dict]] = {}
    for row in rows:
        found.setdefault((row["run"], row["scheme"]), []).append(row)
    return found


def _by_length(rows: list[dict]) -> dict[int, list[dict]]:
    found: dict[int, list[dict]] = {}
    for row in sorted(rows, key=lambda row: (row["length"], row["layer"])):
        found.setdefault(row["length"], []).append(row)
    return found


def _layers(rows: list[dict], field: str) -> list[list[float | None]]:
    """[layers, heads]; a figure that is one for the layer has one column."""
    return [[None if v is None else float(f"{v:.4g}") for v in _heads(row, field)] for row in rows]


def _heads(row: dict, field: str) -> list[float | None]:
    value = row.get(field)
    return value if isinstance(value, list) else [value]


def _label(run: str, scheme: str, rows: list[dict]) -> str:
    runs = dict.fromkeys(row["run"] for row in rows if row["scheme"] == scheme)
    return scheme if len(runs) == 1 else f"{scheme} ({_last(run)})"


def _last(run: str) -> str:
    return str(run).rstrip("/").rsplit("/", 1)[-1]


def _facts(rows: list[dict]) -> str:
    seeds = counted([len({row["seed"] for row in rows})], "seed")
    windows = counted((row["windows"] for row in rows), "window")
    queries = span(row["rows"] for row in rows)
    return f"After the mask, over {windows} of each length, {queries} query rows, {seeds}."
