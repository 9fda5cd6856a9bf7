"""curves.png and curves.svg: perplexity against length, every scheme in a colour of its own."""

import math
import os
import textwrap
from collections.abc import Sequence
from pathlib import Path

from evaluation.captions import in_lines, limit, notes, subtitle
from evaluation.curves import Curve, gather, main_protocol
from evaluation.records import replacing
from evaluation.styles import appearances, style

INK, QUIET, GRID = "#1C1C1C", "#5F5F5F", "#E4E4E4"
LABEL_CHARACTERS = 24
LOWEST, HIGHEST = -0.16, 1.08  # the room for labels, in heights of the axes


def plot_curves(
    records: list[dict], out_dir: str | os.PathLike, statistics: Sequence[dict] = ()
) -> None:
    """Writes curves.png and curves.svg for protocol `fixed`, or the first there is.

    `statistics`, the rows of `evaluation.compare`, give curves of several seeds their interval;
    without them a band is the range of the seeds. The same records give the same svg, byte for
    byte. Text in the svg stays text.
    """
    from matplotlib import rc_context
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    protocol = main_protocol(records)
    curves = gather(records, protocol, statistics)
    settings = {"font.family": "DejaVu Sans", "font.size": 10, "text.parse_math": False}
    settings |= {"svg.fonttype": "none", "svg.hashsalt": "lengthwise"}
    with rc_context(settings):
        words = [textwrap.fill(line, 140) for line in notes(records, curves, protocol)]
        words = "\n".join(words)
        more = 0.18 * max(words.count("\n") - 1, 0)  # inches; two lines have their room below
        height = 5.8 + more
        figure = Figure(figsize=(9.6, height), facecolor="white")
        FigureCanvasAgg(figure)
        axes = figure.add_axes((0.078, (1.1 + more) / height, 0.68, 3.68 / height))
        _draw(axes, curves, protocol)
        _write_words(figure, subtitle(records, curves, protocol), words, protocol == "position")
        for kind, metadata in (("svg", {"Date": None}), ("png", {})):
            with replacing(out_dir / f"curves.{kind}") as path:
                figure.savefig(path, format=kind, dpi=200, metadata=metadata)


def _draw(axes, curves: list[Curve], protocol: str) -> None:
    top = limit(curves)
    lengths = sorted({n for c in curves for n in (*c.lengths, *c.missing)}) or [1]
    heights, ends = [], []
    looks = appearances([curve.scheme for curve in curves])
    for order, (curve, (line, dots)) in enumerate(zip(curves, looks, strict=True)):
        colour = line["color"]
        nll = dict(zip(curve.lengths, curve.nll, strict=True))
        nll = {n: value for n, value in nll.items() if value < top}
        x = sorted({*curve.lengths, *curve.missing})
        y = [math.exp(nll[n]) if n in nll else math.nan for n in x]  # a gap where nothing is known
        axes.plot(x, y, zorder=3 + order / 100, **line)
        if protocol != "position":
            axes.plot(x, y, zorder=4 + order / 100, **dots)
        for n, value, following in zip(x, y, y[1:], strict=False):
            if math.isfinite(value) and math.isnan(following):
                mark = {"ms": 10, "mfc": "white", "mec": colour, "mew": 1.5}
                axes.plot(n, value, "X", zorder=5 + order / 100, **mark)
        bounds = zip(curve.lengths, curve.low, curve.high, strict=True)
        bounds = {n: (a, min(b, top)) for n, a, b in bounds if n in nll and a is not None}
        bounds = [bounds.get(n, (math.nan, math.nan)) for n in x]
        low, high = ([math.exp(pair[side]) for pair in bounds] for side in (0, 1))
        axes.fill_between(x, low, high, color=colour, alpha=0.17, lw=0, zorder=2)
        heights += [value for value in y if math.isfinite(value)]
        last = max(nll, default=None)
        note = curve.note()
        if len(nll) < len(curve.lengths):
            note = "off the scale" + (f" past {last}" if last else "")
        ends.append((curve, note, last, math.exp(nll[last]) if nll else None))
    heights += _draw_cropped(axes, curves, lengths, top)
    if not heights:
        nothing = {"transform": axes.transAxes, "ha": "center", "color": QUIET}
        axes.text(0.5, 0.5, "no point could be measured", **nothing)
    _set_scales(axes, lengths, heights)
    for n in sorted({c.train_length for c in curves if c.train_length}):
        if axes.get_xlim()[0] <= n <= axes.get_xlim()[1]:
            axes.axvline(n, color=QUIET, lw=1.1, zorder=1)
            text = {"xycoords": axes.get_xaxis_transform(), "textcoords": "offset points"}
            axes.annotate(
                f"training length {n}", (n, 1), xytext=(0, 4), color=QUIET, fontsize=8.5, **text
            )
    _write_labels(axes, ends, looks, lengths[-1])


def _draw_cropped(axes, curves: list[Curve], lengths: list[int], top: float) -> list[float]:
    """The lines that a model would keep if it ignored all beyond L; runs that share one, once."""
    drawn = {}
    for curve in curves:
        if curve.cropped is not None and curve.cropped < top:
            drawn.setdefault(round(curve.cropped, 4), curve)
    for nll, curve in drawn.items():
        ends = [max(curve.train_length or lengths[0], lengths[0]), lengths[-1]]
        colour = style(curve.scheme)[0]
        axes.plot(ends, [math.exp(nll)] * 2, color=colour, lw=1.1, dashes=(4, 3), zorder=2.5)
    return [math.exp(nll) for nll in drawn]


def _set_scales(axes, lengths: list[int], heights: list[float]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    room = max(math.log2(lengths[-1] / lengths[0]), 1) * 0.035
    axes.set_xlim(lengths[0] / 2**room, lengths[-1] * 2**room)
    low, high = math.log(min(heights, default=1.0)), math.log(max(heights, default=1.0))
    room = max(high - low, 0.2) * 0.07
    bottom, top = math.exp(low - room), math.exp(high + room)
    axes.set_ylim(bottom, top)
    gap, kept = math.log2(lengths[-1] / lengths[0]) / 13, []
    if len(lengths) > 14:  # the many buckets of positions
        lengths = [n for n in lengths if n & (n - 1) == 0]
    for n in reversed(lengths):
        if not kept or math.log2(kept[-1] / n) >= gap:
            kept.append(n)
    frame(axes, kept, _round_numbers(bottom, top) if heights else [])


def frame(axes, x_ticks: Sequence[float], y_ticks: Sequence[float]) -> None:
    """These ticks, a quiet grid, and no line but the one below."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    for axis, ticks in ((axes.xaxis, x_ticks), (axes.yaxis, y_ticks)):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_major_formatter(FixedFormatter([f"{tick:.6g}" for tick in ticks]))
        axis.set_minor_locator(NullLocator())
    axes.grid(color=GRID, lw=0.8)
    axes.set_axisbelow(True)
    for side, spine in axes.spines.items():
        spine.set_visible(side == "bottom")
        spine.set_color("#9A9A9A")
    axes.tick_params(length=0, pad=6, colors=INK)


def _round_numbers(bottom: float, top: float) -> list[float]:
    """Round numbers from `bottom` to `top` for a log axis: the densest set of at most 9."""
    decades = range(math.floor(math.log10(bottom)), math.ceil(math.log10(top)) + 1)
    steps = [1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9]
    for chosen in (steps, [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8], [1, 1.5, 2, 3, 5, 7], [1, 2, 5], [1, 3]):
        ticks = [10**k * step for k in decades for step in chosen]
        ticks = [tick for tick in ticks if bottom <= tick <= top]
        if len(ticks) <= 9:
            return ticks
    return [10**k for k in decades if bottom <= 10**k <= top]


def _write_labels(axes, ends: list[tuple], looks: list[tuple[dict, dict]], longest: int) -> None:
    """The name of each curve at the right, at its end's height or as near as the others allow."""
    # height of a line of text, in heights of the axes: smaller where there are very many
    lines = sum(len(in_lines(c.label, LABEL_CHARACTERS)) + bool(note) for c, note, *_ in ends)
    line = min(0.043, 0.95 / max(lines, 1))
    to_axes = axes.transData + axes.transAxes.inverted()
    labels = []
    for (curve, note, last, height), look in zip(ends, looks, strict=True):
        names = in_lines(curve.label, LABEL_CHARACTERS)
        end = (1.0, 0.0) if last is None else tuple(to_axes.transform((last, height)))
        labels.append((end, names, note, last == longest, look))
    labels.sort(key=lambda label: label[0][1])
    sizes = [line * (len(names) + bool(note)) + 0.28 * line for _, names, note, _, _ in labels]
    centres = _apart([end[1] for end, *_ in labels], sizes)
    for label, centre, size in zip(labels, centres, sizes, strict=True):
        end, names, note, reaches, (line_look, dots) = label
        top = centre + size / 2 - 0.64 * line
        inside = {"transform": axes.transAxes, "clip_on": False}
        if reaches:
            leader = {"color": dots["color"], "lw": 0.8, "alpha": 0.6, "zorder": 2}
            axes.plot([end[0], 1.045], [end[1], top], **inside, **leader)
        axes.plot([1.045, 1.085], [top, top], **inside, **line_look)
        axes.plot(1.065, top, **inside, **dots)
        text = {"transform": axes.transAxes, "va": "center"}
        for row, name in enumerate(names):
            axes.text(1.1, top - row * line, name, color=INK, fontsize=220 * line, **text)
        if note:
            at = top - len(names) * line
            axes.text(1.1, at, note, color=QUIET, fontsize=195 * line, style="italic", **text)


def _apart(wanted: list[float], sizes: list[float]) -> list[float]:
    """Centres near the ascending `wanted` such that intervals of `sizes` do not overlap.

    Neighbours that would overlap become a pile, which stands where its members move least.
    """
    piles: list[list] = []  # [bottom, sizes, wanted]
    for centre, size in zip(wanted, sizes, strict=True):
        piles.append([centre - size / 2, [size], [centre]])
        while len(piles) > 1 and piles[-2][0] + sum(piles[-2][1]) > piles[-1][0]:
            _, upper_sizes, upper_wanted = piles.pop()
            pile = piles[-1]
            pile[1] += upper_sizes
            pile[2] += upper_wanted
            offsets = [sum(pile[1][:i]) + s / 2 for i, s in enumerate(pile[1])]
            shifts = [w - o for w, o in zip(pile[2], offsets, strict=True)]
            pile[0] = sum(shifts) / len(shifts)
    floor = LOWEST
    for pile in piles:  # keep to the room there is: up from below, then down from above
        pile[0] = floor = max(pile[0], floor)
        floor += sum(pile[1])
    ceiling = HIGHEST
    for pile in reversed(piles):
        ceiling = pile[0] = min(pile[0], ceiling - sum(pile[1]))
    centres = []
    for bottom, pile_sizes, _ in piles:
        for size in pile_sizes:
            centres.append(bottom + size / 2)
            bottom += size
    return centres


def _write_words(figure, facts: str, words: str, position: bool) -> None:
    axes, inches = figure.axes[0], figure.get_figheight()
    axes.set_xlabel(
        "position in the window (tokens)" if position else "context length (tokens)",
        color=INK,
        labelpad=8,
    )
    axes.set_ylabel("perplexity per token", color=INK, labelpad=8)
    kind = "position in the window" if position else "context length"
    title = {"fontsize": 14.5, "weight": "bold", "color": INK}
    figure.text(0.02, 1 - 0.32 / inches, f"Perplexity against {kind}", **title)
    figure.text(0.02, 1 - 0.58 / inches, facts, fontsize=9.5, color=QUIET)
    figure.text(0.02, 0.145 / inches, words, fontsize=8.5, color=QUIET, linespacing=1.5)
