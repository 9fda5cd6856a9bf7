"""Loss against length, and by position: the data of the plots, and the tables of the same figures."""

from evaluation.captions import coinciding
from evaluation.report.grids import NOTHING, Cell, grid, named, scale, shade, shades
from evaluation.report.looks import looks
from evaluation.report.markup import Markup, join, tag
from evaluation.report.measured import Measured, Point, among, measured
from evaluation.tables import MARKS, Block, blocks, span

READING = {
    "fixed": "The same target tokens at every length, so only the context grows.",
    "disjoint": "Windows side by side, every token scored once. Part of the gain with length is "
    "only that fewer tokens sit near the start of a window.",
    "sliding": "Overlapping windows, every token scored once, most of them with a long context.",
    "position": "Loss by position in the longest window, in buckets; each point stands at the end "
    "of its bucket.",
    "recurrent": "Documents read in segments of the training length, every token scored once; the "
    "length is the attention span, a segment and the memory of the tokens before it. The memory "
    "has itself seen further back, layer by layer.",
}
# Nats from the lightest to the darkest cell: fewer, and trifles look grave; more, and the others
# all look alike.
LEAST, MOST = 0.25, 3.0


def views(records: list[dict], statistics: list[dict]) -> list[dict]:
    """The data of the plots: one view per protocol, `fixed` first, `position` last."""
    found = []
    for block in _ordered(blocks(records)):
        curves = measured(records, block.protocol, statistics)
        appearance = looks([m.curve.scheme for m in curves])
        hidden = coinciding([m.curve for m in curves])
        found.append(
            {
                "name": block.protocol,
                "reading": READING.get(block.protocol, ""),
                "facts": facts(block, curves),
                "trained": sorted(block.train_lengths),
                "curves": [
                    _plain(m, look, hidden) for m, look in zip(curves, appearance, strict=True)
                ],
            }
        )
    return found


def tables(records: list[dict], statistics: list[dict]) -> list[tuple[str, Markup]]:
    """(protocol, the table of its curves against lengths), in the order of the views."""
    return [
        (block.protocol, _table(block, measured(records, block.protocol, statistics)))
        for block in _ordered(blocks(records))
    ]


def facts(block: Block, curves: list[Measured]) -> str:
    """Protocol, stride, targets, documents, intervals and seeds of one figure, in words."""
    several = span(m.curve.seeds for m in curves if m.curve.seeds > 1)
    mean = f"; a curve is the mean of {several} seeds" if several != "-" else ""
    return f"{block.protocol.capitalize()} protocol, {block.facts}{mean}."


def _ordered(found: list[Block]) -> list[Block]:
    order = {"fixed": 0, "position": 2}
    return sorted(found, key=lambda block: order.get(block.protocol, 1))


def _plain(m: Measured, look: dict, hidden: dict[str, str]) -> dict:
    known = [p for p in m.points if p.nll is not None]
    note = m.curve.note()
    if any(p.off for p in known):
        past = [p.length for p in known if not p.off]
        note = f"off the scale past {max(past)}" if past else "off the scale"
    return {
        "label": m.curve.label,
        "note": legend_note(note, hidden.get(m.curve.label)),
        "trained": m.curve.train_length,
        **look,
        "points": [_point(p) for p in m.points],
        "cropped": _point(m.cropped) if m.cropped else None,
    }


def legend_note(note: str, other: str | None) -> str:
    """What stands below a curve's name: where it ends, and which other one it lies on."""
    return "; ".join(words for words in (note, other and f"coincides with {other}") if words)


def _point(p: Point) -> list:
    drawn = p.nll is not None and not p.off
    figures = [p.nll, p.low, p.high] if drawn else [None, None, None]
    figures = [None if value is None else float(f"{value:.6g}") for value in figures]
    bits = None if p.bits is None else float(f"{p.bits:.8g}")
    if p.off:
        why = f"{p.nll:.4g} nats: off the scale"
    else:
        why = p.reason or ""
    return [p.length, *figures, bits, p.interval, p.facts, why]


def _table(block: Block, curves: list[Measured]) -> Markup:
    lengths = [length for protocol, length in block.columns if protocol != "cropped"]
    columns = [block.header(column) for column in block.columns]
    cropped = sorted({m.cropped.length for m in curves if m.cropped})
    known = [p.nll for m in curves for p in m.points if p.nll is not None and p.length in lengths]
    low, high = shades(known, LEAST, MOST)
    rows = []
    for m in curves:
        at = {p.length: p for p in m.points}
        points = [at.get(length) for length in lengths]
        points += [m.cropped if m.cropped and m.cropped.length == n else None for n in cropped]
        runs = among(m.curve)
        title = "\n".join(map(str, m.curve.runs))
        rows.append((named(m.curve.label, runs, title), [_cell(p, low, high) for p in points]))
    star = any(column.endswith("*") for column in columns)
    return join(
        grid(
            f"Loss in nats per token, {block.protocol} protocol",
            named("curve", "run"),
            columns,
            rows,
        ),
        scale(f"{low:.2f}", f"{high:.2f}{' or more' if max(known) > high else ''}")
        if known
        else None,
        tag(
            "p",
            facts(block, curves),
            " Small print: 95 % interval, or the range over seeds; the title of a cell says which.",
            " * marks the training length." if star else None,
            class_="quiet",
        ),
    )


def _cell(p: Point | None, low: float, high: float) -> Cell:
    if p is None:
        return NOTHING
    if p.nll is None:
        return Cell(MARKS[p.status], title=p.reason or "", kind="missing")
    small = "" if p.low is None else f"{p.low:.3f} – {p.high:.3f}"
    title = f"{p.interval}; {p.facts}" if p.interval else p.facts
    text = f"{p.nll:.3f}" if p.nll < 1000 else f"{p.nll:.3g}"
    return Cell(text, small, title, shade(p.nll, low, high))
