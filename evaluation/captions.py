"""What a picture of curves says of itself: protocol, stride, targets, documents, seeds, bands."""

from evaluation.curves import Curve
from evaluation.tables import cluster_span, counted, span

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
    return lines


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
