"""What a picture of curves says of itself: protocol, stride, targets, documents, seeds, bands."""

import math
import re
import textwrap
from collections.abc import Sequence

from evaluation.curves import Curve
from evaluation.tables import cluster_span, counted, span

OFF_SCALE = math.log(1e6)  # a point this far above the lowest, in nats, would flatten all others
LARGEST = 650.0  # nats; exp overflows at 709
LINE = 0.005  # of a picture's height, less than the width of a line
SEPARATORS = r"(?<=[,:/|+ ])"  # after these a long name may go on in the next line

SUBTITLES = {
    "fixed": "The same target tokens at every length",
    "disjoint": "Windows side by side, every token scored",
    "sliding": "Overlapping windows, every token scored once",
    "position": "Loss by position in windows side by side",
    "recurrent": "Segments read with a memory of the tokens before",
}


def subtitle(records: list[dict], curves: list[Curve], protocol: str) -> str:
    """How the curves were measured, in one line."""
    chosen = [r for r in records if r["protocol"] == protocol]
    measured = [r for r in chosen if r["status"] == "ok"]
    facts = [f"{protocol} protocol", f"stride {span(r['stride'] for r in chosen)}"]
    if measured:
        facts.append(counted((r["tokens_scored"] for r in measured), "target"))
        facts.append(counted((r["documents"] for r in measured), "document"))
    facts.append(counted((c.seeds for c in curves), "seed"))
    return f"{SUBTITLES[protocol]}: {', '.join(facts)}"


def notes(records: list[dict], curves: list[Curve], protocol: str) -> list[str]:
    """What the bands and the dashed lines are, a line each."""
    measured = [r for r in records if r["protocol"] == protocol and r["status"] == "ok"]
    lines = [_bands({c.band for c in curves}, cluster_span(measured))] if measured else []
    lengths = sorted({c.train_length for c in curves if c.cropped is not None and c.train_length})
    if lengths:
        last = f"only the last {lengths[0]} tokens of context"
        if len(lengths) > 1:
            last = f"only a training length of context (the last {_either(lengths)} tokens)"
        lines.append(f"Thin dashed lines: the same targets, {last}.")
    pairs = coinciding(curves)
    if pairs:
        told = ", ".join(f"{label} with {other}" for label, other in pairs.items())
        lines.append(f"Coinciding, less than a line's width apart: {told}.")
    return lines


def limit(curves: Sequence[Curve]) -> float:
    """The loss in nats from which on a point is off the scale of a picture of these curves."""
    return min(min((min(c.nll) for c in curves if c.nll), default=0.0) + OFF_SCALE, LARGEST)


def coinciding(curves: Sequence[Curve], height: float | None = None) -> dict[str, str]:
    """The label of a curve -> that of the first one before it from which a reader cannot tell it.

    Such a curve hides the other: at each length, and they have the same ones, the two are less than
    a line's width apart. `height` is what the picture spans, if not what the curves do, in nats.
    """
    top = limit(curves)
    drawn = [nll for curve in curves for nll in curve.nll if nll < top] or [0.0]
    width = LINE * (max(max(drawn) - min(drawn), 0.2) if height is None else height)
    found: dict[str, str] = {}
    for place, curve in enumerate(curves):
        for other in curves[:place]:
            pairs = zip(curve.nll, other.nll, strict=False)
            alike = curve.lengths == other.lengths and all(abs(a - b) < width for a, b in pairs)
            if alike and curve.lengths and other.label not in found:
                found[curve.label] = other.label
                break
    return found


def in_lines(name: str, width: int) -> list[str]:
    """A name in lines of at most `width` characters, broken after its separators where it can be."""
    lines = [""]
    for part in re.split(SEPARATORS, name):
        if lines[-1] and len(lines[-1]) + len(part.rstrip()) > width:
            lines.append("")
        lines[-1] += part
    return [piece for line in lines for piece in textwrap.wrap(line, width) or [""]]


def _bands(bands: set[str], clusters: str) -> str:
    interval = "95 % bootstrap intervals over"
    if bands == {"text"}:
        return f"Bands: {interval} {clusters}."
    parts = []
    if "seeds and text" in bands:
        single = ", of single runs over text" if "text" in bands else ""
        parts.append(f"{interval} seeds and text{single} ({clusters})")
    if "range" in bands:
        parts.append("from the lowest to the highest seed")
    if "text" in bands and "seeds and text" not in bands:
        parts.append(f"of single runs {interval} {clusters}")
    return f"Lines: the mean of the seeds. Bands: {'; '.join(parts)}."


def _either(numbers: list[int]) -> str:
    """64 or 256; 64, 128 or 256."""
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}"
