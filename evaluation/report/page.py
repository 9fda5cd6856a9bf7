"""The page itself: sections, style, scripts and data, all in one file."""

import os
import re
from pathlib import Path

from evaluation.curves import gather
from evaluation.plots import plot_curves
from evaluation.records import read_records, replacing
from evaluation.report import diagnostics, losses, probes, sections
from evaluation.report.markup import Markup, data_block, join, tag
from evaluation.tables import counted, span

HERE = Path(__file__).parent
SCRIPTS = ("scene.js", "legend.js", "traces.js", "curves.js", "maps.js", "page.js")
TITLE = "Perplexity past the training length"
PROBES_TITLE = "Right answers past the training length"  # where there is nothing else


def write_report(records: list[dict], out_dir: str | os.PathLike) -> None:
    """Writes report.html from the records and what lies beside them.

    Of OUT it reads curves.svg (drawn if it is not there), statistics.jsonl and diagnostics.jsonl
    (each may be missing), and of each run its config.json. The same files give the same bytes.
    """
    from plotly.offline import get_plotlyjs

    out_dir = Path(out_dir)
    curves = [r for r in records if not r["protocol"].startswith(probes.PREFIX)]
    statistics, attention = (
        read_records(path) if (path := out_dir / f"{name}.jsonl").exists() else []
        for name in ("statistics", "diagnostics")
    )
    if not (out_dir / "curves.svg").exists():
        plot_curves(curves, out_dir, statistics)
    views = losses.views(curves, statistics)
    data = {
        "curves": [view for view in views if view["name"] != "position"],
        "position": [view for view in views if view["name"] == "position"],
        "probes": probes.views(records),
        "diagnostics": diagnostics.views(attention),
    }
    tables = losses.tables(curves, statistics)
    found = [
        sections.curves(curves, data["curves"], out_dir / "curves.svg"),
        sections.diagnostics(data["diagnostics"], attention),  # they explain the curves
        sections.matrix([pair for pair in tables if pair[0] != "position"]),
        sections.differences(statistics),
        sections.positions(data["position"], [pair for pair in tables if pair[0] == "position"]),
        sections.probes(data["probes"], records),
        sections.runs(records),
    ]
    found = [section for section in found if section is not None]
    links = [tag("a", title, href=f"#{name}") for name, title, _ in found]
    title = PROBES_TITLE if records and not curves else TITLE
    parts = {
        "TITLE": tag("title", title),
        "STYLE": tag("style", Markup((HERE / "page.css").read_text(encoding="utf-8"))),
        "HEADER": join(tag("h1", title), tag("p", _summary(records), class_="quiet")),
        "LINKS": tag("nav", *links, aria_label="Parts of this page"),
        "SECTIONS": join(
            *(tag("section", tag("h2", title), body, id=name) for name, title, body in found)
        ),
        "DATA": data_block("data", data),
        "PLOTLY": tag("script", Markup(get_plotlyjs())),
        "SCRIPTS": tag("script", Markup("".join(map(_script, SCRIPTS)))),
    }
    page = re.sub("{{([A-Z]+)}}", lambda found: parts[found[1]], _template())
    with replacing(out_dir / "report.html") as path:
        path.write_text(page, encoding="utf-8")


def _template() -> str:
    return (HERE / "page.html").read_text(encoding="utf-8")


def _script(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")


def _summary(records: list[dict]) -> str:
    protocols = {r["protocol"] for r in records} - {"cropped"}
    labels = {curve.label for name in protocols for curve in gather(records, name)}
    # options and the run it is read from make another curve, and no other scheme
    schemes = {re.sub(r":[^+|]*", "", str(r.get("scheme"))) for r in records}
    parts = [
        counted([len(labels)], "curve"),
        counted([len(schemes)], "scheme"),
        counted([len({r.get("run") for r in records})], "run"),
        f"lengths {span(r['length'] for r in records if r['protocol'] != 'position')}",
    ]
    trained = {r.get("train_length") for r in records} - {None}
    if trained:
        parts.append(f"trained at {', '.join(map(str, sorted(trained)))}")
    return ", ".join(parts)
