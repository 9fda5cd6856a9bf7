"""The runs behind the curves: configuration and provenance, and the points without a figure."""

import json
from pathlib import Path

from evaluation.report.grids import scrolling
from evaluation.report.markup import Markup, breakable, join, tag
from evaluation.tables import troubles

FIELDS = ("seed", "step", "train_length", "config_hash")
HEADS = (
    *("run", "trained as", "started from", "seed", "step", "training length", "config hash"),
    "revision",
)


def runs(records: list[dict]) -> Markup:
    """A table of the runs, the settings in which they differ, and each whole config.json."""
    rows = list(dict.fromkeys((r.get("run"), *(r.get(f) for f in FIELDS)) for r in records))
    configs = {run: _config(run) for run in dict.fromkeys(row[0] for row in rows)}
    body = []
    for run, *values in rows:
        config = configs[run] or {}
        provenance = config.get("provenance") or {}
        revision = str(provenance.get("git_revision") or "–")
        about = [config.get("position"), _origin(configs[run]), *values, revision[:12]]
        cells = [tag("td", "–" if v is None else _text(v)) for v in about]
        body.append(tag("tr", tag("th", breakable(str(run)), scope="row"), *cells))
    head = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in HEADS)))
    table = tag(
        "table",
        tag("caption", "The runs as they were evaluated"),
        head,
        tag("tbody", *body),
        class_="words",
    )
    known = {run: config for run, config in configs.items() if config}
    whole = [
        tag(
            "details",
            tag("summary", str(run)),
            tag("pre", json.dumps(config, indent=2, ensure_ascii=False), tabindex=0),
        )
        for run, config in known.items()
    ]
    missing = [str(run) for run in configs if run not in known]
    more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
    told = f"Not readable when this page was made: config.json of {', '.join(missing[:3])}{more}."
    return join(
        scrolling(table, "Runs"),
        _differing(known),
        tag("details", tag("summary", "The whole configuration of each run"), *whole)
        if whole
        else None,
        tag("p", told, class_="quiet") if missing else None,
    )


def missing_points(records: list[dict]) -> Markup | None:
    """The list of points without a figure, folded, or None."""
    lines = troubles(records)
    if not lines:
        return None
    count = sum(r["status"] != "ok" for r in records)
    return tag(
        "details",
        tag("summary", f"{count} point{'' if count == 1 else 's'} without a figure, and why"),
        tag("ul", *(tag("li", line) for line in lines)),
        id="missing",
    )


def _config(run: object) -> dict | None:
    """The run's config.json, None where its folder is elsewhere now."""
    try:
        found = json.loads((Path(str(run)) / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):  # ValueError: not JSON, not UTF-8, or no name of a file
        return None
    return found if isinstance(found, dict) else None


def _differing(configs: dict) -> Markup | None:
    """The settings that are not the same in all runs, without what follows from them."""
    if len(configs) < 2:
        return None
    skipped = ("provenance", "corpus", "tokenizer", "config_hash", "train_length", "parent")
    flat = {
        run: dict(_leaves({k: v for k, v in config.items() if k not in skipped}))
        for run, config in configs.items()
    }
    names = list(dict.fromkeys(name for settings in flat.values() for name in settings))
    differing = [
        name for name in names if len({_text(settings.get(name)) for settings in flat.values()}) > 1
    ]
    if not differing:
        return None
    body = [
        tag(
            "tr",
            tag("th", breakable(str(run)), scope="row"),
            *(tag("td", _text(settings.get(name, "–"))) for name in differing),
        )
        for run, settings in flat.items()
    ]
    head = tag("tr", *(tag("th", name, scope="col") for name in ("run", *differing)))
    caption = "Settings in which the runs differ; all others are the same"
    rows = tag("thead", head), tag("tbody", *body)
    return scrolling(tag("table", tag("caption", caption), *rows, class_="words"), caption)


def _origin(config: dict | None) -> str | None:
    """Where the run's weights came from; None where that cannot be read."""
    if config is None:
        return None
    parent = config.get("parent")
    if not isinstance(parent, dict):
        return "random weights"
    return f"{parent.get('run')} at step {parent.get('step')}, {_text(parent.get('position'))}"


def _leaves(value: object, name: str = "") -> list[tuple[str, object]]:
    """("train.steps", 600) of nested mappings."""
    if not isinstance(value, dict):
        return [(name, value)]
    return [
        leaf
        for key, inner in value.items()
        for leaf in _leaves(inner, f"{name}.{key}" if name else str(key))
    ]


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
