"""probes.png and probes.svg: the share of right answers against length, one panel for each task."""

import math
import os
from pathlib import Path

from evaluation.captions import coinciding
from evaluation.curves import gather
from evaluation.plots import INK, QUIET, frame
from evaluation.probes import MEASURED, PREFIX
from evaluation.records import replacing
from evaluation.styles import appearances
from evaluation.tables import span

NAMES = ("probes.png", "probes.svg")
PANEL, HEAD, FOOT = (4.4, 2.9), 1.0, 0.75  # inches
MOST_COLUMNS = 3


def plot_probes(records: list[dict], out_dir: str | os.PathLike) -> None:
    """Writes both files for the probe records there are, and removes them where there are none.

    The line of several seeds is their mean, with the band from the lowest to the highest; that of
    one seed has its 95 % Wilson interval. The same records give the same svg, byte for byte.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    out_dir = Path(out_dir)
    if not records:
        for name in NAMES:
            (out_dir / name).unlink(missing_ok=True)
        return
    out_dir.mkdir(parents=True, exist_ok=True)
    panels = {
        protocol: gather([as_loss(r) for r in records], protocol)
        for protocol in dict.fromkeys(r["protocol"] for r in records)
    }
    lines = list(dict.fromkeys(curve.label for curves in panels.values() for curve in curves))
    schemes = {curve.label: curve.scheme for curves in panels.values() for curve in curves}
    looks = dict(zip(lines, appearances([schemes[label] for label in lines]), strict=True))
    columns = min(len(panels), MOST_COLUMNS)
    rows = -(-len(panels) // columns)
    legend = 0.24 * -(-len(lines) // (2 * columns))
    size = (max(PANEL[0] * columns, 6.4), HEAD + PANEL[1] * rows + FOOT + legend)
    settings = {"font.family": "DejaVu Sans", "font.size": 9.5, "text.parse_math": False}
    settings |= {"svg.fonttype": "none", "svg.hashsalt": "lengthwise"}
    with rc_context(settings):
        figure = Figure(figsize=size, facecolor="white")
        FigureCanvasAgg(figure)
        for number, (protocol, curves) in enumerate(panels.items()):
            row, column = divmod(number, columns)
            left, bottom = (column + 0.13) / columns, FOOT + legend + PANEL[1] * (rows - 1 - row)
            box = (left, (bottom + 0.35) / size[1], 0.82 / columns, (PANEL[1] - 0.85) / size[1])
            _draw(figure.add_axes(box), protocol.removeprefix(PREFIX), curves, looks)
        _write_words(figure, records, looks, 2 * columns, _hidden(panels))
        for kind, metadata in (("svg", {"Date": None}), ("png", {})):
            with replacing(out_dir / f"probes.{kind}") as path:
                figure.savefig(path, format=kind, dpi=200, metadata=metadata)


def as_loss(record: dict) -> dict:
    """The record with its accuracy where `gather` reads what is to be drawn."""
    values = (record[name] for name in MEASURED)
    return record | dict(zip(("nll", "ci_low", "ci_high"), values, strict=True))


def _hidden(panels: dict[str, list]) -> str:
    """Which curves lie on another one, by task."""
    told = [
        f"{protocol.removeprefix(PREFIX)}: {label} with {other}"
        for protocol, curves in panels.items()
        for label, other in coinciding(curves, 1.0).items()
    ]
    return f" Coinciding: {'; '.join(told)}." if told else ""


def _draw(axes, task: str, curves: list, looks: dict[str, tuple[dict, dict]]) -> None:
    lengths = sorted({n for c in curves for n in (*c.lengths, *c.missing)})
    for order, curve in enumerate(curves):
        line, dots = looks[curve.label]
        accuracy = dict(zip(curve.lengths, curve.nll, strict=True))
        bounds = dict(zip(curve.lengths, zip(curve.low, curve.high, strict=True), strict=True))
        y = [accuracy.get(n, math.nan) for n in lengths]  # a gap where nothing is known
        axes.plot(lengths, y, zorder=3 + order / 100, clip_on=False, **line)
        axes.plot(lengths, y, zorder=4 + order / 100, clip_on=False, **dots)
        low, high = zip(*(bounds.get(n, (math.nan, math.nan)) for n in lengths), strict=True)
        axes.fill_between(lengths, low, high, color=line["color"], alpha=0.13, lw=0, zorder=2)
    axes.set_title(task, loc="left", color=INK, fontsize=11, weight="bold", pad=16)
    axes.set_xscale("log", base=2)
    axes.set_xlim(lengths[0] / 1.08, lengths[-1] * 1.08)
    axes.set_ylim(0, 1)
    kept = [n for n in lengths if n & (n - 1) == 0] or lengths
    frame(axes, kept, (0, 0.25, 0.5, 0.75, 1))
    for n in sorted({c.train_length for c in curves if c.train_length}):
        if axes.get_xlim()[0] <= n <= axes.get_xlim()[1]:
            axes.axvline(n, color=QUIET, lw=1.1, zorder=1)
            at = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
            text = {"xytext": (0, 3), "color": QUIET, "fontsize": 8}
            axes.annotate(f"training length {n}", (n, 1), **text, **at)


def _write_words(figure, records: list[dict], looks: dict, columns: int, hidden: str) -> None:
    from matplotlib.lines import Line2D

    inches = figure.get_figheight()
    left = 0.3 / figure.get_figwidth()
    title = {"fontsize": 14, "weight": "bold", "color": INK}
    figure.text(left, 1 - 0.38 / inches, "Right answers against length", **title)
    asked = span(r["answers"] for r in records if r["status"] == "ok")
    subtitle = f"Share of answers wholly right under greedy decoding, of {asked} at each length"
    figure.text(left, 1 - 0.64 / inches, subtitle, fontsize=9, color=QUIET)
    handles = [Line2D([], [], **(line | dots | {"ls": "-"})) for line, dots in looks.values()]
    for handle, (line, _) in zip(handles, looks.values(), strict=True):
        handle.set_dashes(line["dashes"] or (None, None))
    figure.legend(
        handles,
        looks,
        loc="lower left",
        bbox_to_anchor=(left, 0.36 / inches),
        ncols=columns,
        frameon=False,
        fontsize=9,
        borderaxespad=0,
        borderpad=0,
        handlelength=3.2,
    )
    note = "Across: length of the example in tokens. Bands: 95 % intervals, or the range of several seeds."
    note += hidden
    figure.text(left, 0.14 / inches, note, fontsize=8, color=QUIET)
