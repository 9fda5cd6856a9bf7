"""Curves with all that the page tells of each point: interval, seeds, counts, or why there is none."""

from dataclasses import dataclass

from evaluation.captions import limit
from evaluation.curves import Curve, gather

# what the bounds of a point are
TEXT = "95 % interval for the text"
SEEDS_AND_TEXT = "95 % interval for seeds and text"
RANGE = "range"


@dataclass(frozen=True)
class Point:
    """One curve at one length, or its targets with cropped context.

    Attributes:
      status, reason: of the first run that has no figure; "ok" and None where all have.
      nll, low, high: nats per token, None without a figure; the bounds None without an interval.
      interval: what the bounds are.
      bits: bits per byte of one nat per token, None if bytes are not known.
      facts: targets, documents and clusters, in words; the factor used, if any.
      off: the figure is so high that a plot would show nothing else.
    """

    length: int
    status: str
    reason: str | None
    nll: float | None
    low: float | None
    high: float | None
    interval: str
    bits: float | None
    facts: str
    off: bool = False


@dataclass(frozen=True)
class Measured:
    """A curve, its points in the order of their lengths, and its cropped line."""

    curve: Curve
    points: list[Point]
    cropped: Point | None


def measured(records: list[dict], protocol: str, statistics: list[dict]) -> list[Measured]:
    """The curves of one protocol; `statistics` gives several seeds of `fixed` their intervals."""
    # the cropped line is over the targets of `fixed`, and of no other protocol
    kinds = (protocol, "cropped") if protocol == "fixed" else (protocol,)
    records = [r for r in records if r["protocol"] in kinds]
    curves = gather(records, protocol, statistics)
    top = limit(curves)
    found = []
    for curve in curves:
        mine = [r for r in records if r["scheme"] == curve.scheme and r.get("run") in curve.runs]
        bands = zip(curve.lengths, zip(curve.low, curve.high, strict=True), strict=True)
        bands = {length: (*bounds, curve.band) for length, bounds in bands}
        at: dict[tuple, list[dict]] = {}
        for r in mine:
            at.setdefault((r["protocol"], r["length"]), []).append(r)
        points, cropped = [], None
        for (name, length), group in sorted(at.items(), key=lambda item: item[0][1]):
            if name == protocol:
                points.append(_point(group, length, bands.get(length), top))
            else:
                cropped = _point(group, length, None, top)
        found.append(Measured(curve, points, cropped))
    return found


def among(curve: Curve) -> str:
    """Which run it is, or how many: small print, since paths push figures off a narrow screen."""
    if len(curve.runs) > 1:
        return f"{len(curve.runs)} seeds"
    return str(curve.runs[0]).rstrip("/").rsplit("/", 1)[-1]


def _point(records: list[dict], length: int, band: tuple | None, top: float) -> Point:
    """`band` is (low, high, what it is) of the curve there; None for cropped context.

    From `top` on, a loss is off the scale.
    """
    bad = next((r for r in records if r["status"] != "ok"), None)
    if bad is not None:
        reason = bad.get("reason") or bad["status"]
        return Point(length, bad["status"], reason, None, None, None, "", None, "")
    first = records[0]
    values = [r["nll"] for r in records]
    nll = sum(values) / len(values)
    if band is None:
        alone = (first["ci_low"], first["ci_high"], "text")
        band = alone if len(values) == 1 else (min(values), max(values), "range")
    low, high, kind = band
    interval = {"text": TEXT, "seeds and text": SEEDS_AND_TEXT, "range": RANGE}[kind]
    if len(values) > 1 and kind == "range":
        interval += f" of {len(values)} seeds"
    elif len(values) > 1:
        seeds = f"{min(values):.3f} – {max(values):.3f}"
        interval += f"; {len(values)} seeds span {seeds} nats"
    if low is None:
        interval = ""
    bits = first.get("bits_per_byte")
    facts = [f"{first['tokens_scored']} targets", _number(first["documents"], "document")]
    if first.get("clusters") and not first["clusters"].endswith("documents"):
        facts.append(first["clusters"])
    if first.get("factor") is not None:
        facts.append(f"factor {first['factor']:g}")
    return Point(
        length,
        "ok",
        None,
        nll,
        low,
        high,
        interval,
        bits / first["nll"] if bits is not None and first["nll"] else None,
        ", ".join(facts),
        nll >= top,
    )


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
