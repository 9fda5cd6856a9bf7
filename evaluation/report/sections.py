"""The parts of the page, each with its heading and the name by which it is linked."""

import re
from pathlib import Path

from evaluation.report import comparisons
from evaluation.report import diagnostics as attention
from evaluation.report import probes as probing
from evaluation.report import runs as running
from evaluation.report.markup import Markup, join, tag
from evaluation.report.measured import RANGE, SEEDS_AND_TEXT, TEXT

Section = tuple[str, str, Markup]  # name, heading, what stands below it
READING = (
    "Each curve shows how hard a model finds the text when it may look that far back: lower is "
    "better, and a perplexity of p is the uncertainty of an even choice among p tokens.",
    "Up to the training length, marked by its vertical line, the models are on known ground; what "
    "happens to the right of it is extrapolation.",
    "A thin dashed line, where there is one, is the same model on the same tokens with only the training length of "
    "context: a curve below it gains from the longer context, one on it ignores the rest, and one "
    "above it is harmed.",
)
BANDS = {
    SEEDS_AND_TEXT: "95 % intervals for seeds and text together",
    TEXT: "95 % intervals for the text",
    RANGE: "the range over seeds",
}
SHARED = (
    "because all curves share their targets, two whose bands overlap can still differ reliably, "
    "which a paired comparison shows."
)
UNSHARED = (
    "these runs were scored on different targets (other lengths, tokens or text), so compare curves "
    "of one run only."
)


def curves(records: list[dict], views: list[dict], picture: Path) -> Section | None:
    """The plot, the static picture in its place where scripts are off, and how to read them."""
    if not views:
        return None
    svg = picture.read_text(encoding="utf-8")
    svg = svg[svg.index("<svg") :]  # no XML head or doctype inside HTML
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    # the width of the page, not the width in points of the file
    for size in ("height", "width"):
        svg = re.sub(rf'^<svg([^>]*?) {size}="[^"]*"', r"<svg\1", svg, count=1)
    svg = svg.replace("<svg", '<svg role="img" aria-label="Perplexity against length"', 1)
    shared = SHARED if same_targets(records) else UNSHARED
    kinds = [point[5] for view in views for curve in view["curves"] for point in curve["points"]]
    bands = [words for kind, words in BANDS.items() if any(k.startswith(kind) for k in kinds)]
    last = f"Bands are {' or '.join(bands)}; {shared}" if bands else shared.capitalize()
    body = join(
        _plot("curves", "Loss against context length"),
        tag("noscript", tag("div", Markup(svg), class_="picture")),
        tag("h3", "How to read this"),
        tag("ol", *(tag("li", sentence) for sentence in (*READING, last))),
    )
    return "curves", "Curves", body


def matrix(tables: list[tuple[str, Markup]]) -> Section | None:
    """A table per protocol; all but the first are folded."""
    if not tables:
        return None
    first, *others = tables
    folded = (
        tag("details", tag("summary", f"{protocol.capitalize()} protocol"), table)
        for protocol, table in others
    )
    return "matrix", "Loss at each length", join(first[1], *folded)


def differences(statistics: list[dict]) -> Section | None:
    """Paired differences, and whether the extra context is used."""
    pairs, contexts = comparisons.differences(statistics), comparisons.contexts(statistics)
    if pairs is None and contexts is None:
        return None
    words = (
        "Differences are taken target by target, so what makes a text hard for all cancels. Shaded: "
        "the 95 % interval leaves out zero, and the difference is 0.01 nats or more; the larger it "
        "is, the darker. Blue is better, orange worse."
    )
    extra = (
        "Yes: the loss falls when the model may look beyond its training length, on the same "
        "targets. No: nothing is gained. Undecided: the interval holds both. Blue, it helps, orange, "
        "it harms: by 0.01 nats or more, and the more, the darker."
    )
    body = join(
        tag("p", words) if pairs else None,
        pairs,
        tag("h3", "Is the extra context used?") if contexts else None,
        tag("p", extra) if contexts else None,
        contexts,
    )
    return "differences", "Paired differences", body


def positions(views: list[dict], tables: list[tuple[str, Markup]]) -> Section | None:
    """Loss by place in the longest window."""
    if not views:
        return None
    folded = (
        tag("details", tag("summary", "As a table, at powers of two"), table) for _, table in tables
    )
    body = join(_plot("position", "Loss against position in the window"), *folded)
    return "positions", "Loss by position", body


def diagnostics(views: dict | None, rows: list[dict]) -> Section | None:
    """Heat maps of what attention does, and their averages."""
    if views is None:
        return None
    body = join(
        tag("p", "What attention does as the length grows, layer by layer and head by head."),
        _plot("diagnostics", "Heat maps of layers and heads at each length"),
        tag(
            "details",
            tag("summary", "Averages over layers and heads, as tables"),
            attention.averages(rows),
        ),
    )
    return "diagnostics", "Inside attention", body


def probes(views: list[dict], records: list[dict]) -> Section | None:
    """Accuracy against length per task, and by depth where a task has one."""
    if not views:
        return None
    words = "Small tasks with one right answer, which show what the average loss of a text cannot."
    body = join(
        tag("p", words),
        _plot("probes", "Accuracy against length"),
        *(probing.table(records, task) for task in probing.tasks(records)),
    )
    return "probes", "Probes", body


def runs(records: list[dict]) -> Section:
    """Where the figures come from, and the points that have none."""
    return "runs", "Runs", join(running.runs(records), running.missing_points(records))


def same_targets(records: list[dict]) -> bool:
    """Whether all fixed points have as many targets, from as many documents, at one stride."""
    fixed = [r for r in records if r["protocol"] == "fixed" and r["status"] == "ok"]
    return len({(r["tokens_scored"], r["documents"], r["stride"]) for r in fixed}) <= 1


def _plot(name: str, label: str) -> Markup:
    """The place of a plot, which the scripts fill; empty without them."""
    return tag("figure", data_plot=name, data_label=label)
