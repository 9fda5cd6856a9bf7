"""Records as tables, and the one that is printed at the end of a run."""

from collections.abc import Iterable
from dataclasses import dataclass

MARKS = {
    "undefined": "undef.",
    "insufficient_data": "too short",
    "out_of_memory": "oom",
    "non_finite": "nonfinite",
    "failed": "failed",
}
UNITS = "nll in nats per token"
ACCURACY = "share of answers wholly right"


@dataclass(frozen=True)
class Block:
    """The records of one protocol as a table.

    Attributes:
      protocol: its name; "fixed" holds the cropped records too.
      facts: one line: stride, targets, documents, seeds, clusters.
      columns: (protocol, length) of each column.
      rows: (run, scheme, records by column, None where there is none).
      train_lengths: the training lengths of the runs.
    """

    protocol: str
    facts: str
    columns: list[tuple[str, int]]
    rows: list[tuple[str, str, list[dict | None]]]
    train_lengths: set[int]

    @property
    def units(self) -> str:
        """What its figures are."""
        return ACCURACY if self.protocol.startswith("probe:") else UNITS

    def header(self, column: tuple[str, int]) -> str:
        """The length, marked where it is a training length, or the length of cropped context."""
        protocol, length = column
        if protocol == "cropped":
            return f"cropped {length}"
        return f"{length}*" if length in self.train_lengths else f"{length}"


def blocks(records: list[dict]) -> list[Block]:
    """One block per protocol, in the order met. `position` shows the buckets that end at 2^k."""
    found = []
    for protocol in dict.fromkeys(record["protocol"] for record in records):
        if protocol == "cropped":
            continue
        chosen = [r for r in records if r["protocol"] == protocol]
        facts = _facts(protocol, chosen)
        if protocol == "fixed":
            chosen += [r for r in records if r["protocol"] == "cropped"]
        if protocol == "position":
            longest = max(r["length"] for r in chosen)
            chosen = [r for r in chosen if _power_of_two(r["length"]) or r["length"] == longest]
        columns = sorted({(r["protocol"] == "cropped", r["length"]) for r in chosen})
        columns = [("cropped" if last else protocol, length) for last, length in columns]
        cells = {(r.get("run"), r.get("scheme"), r["protocol"], r["length"]): r for r in chosen}
        keys = dict.fromkeys((r.get("run"), r.get("scheme")) for r in chosen)
        rows = [(*key, [cells.get((*key, *column)) for column in columns]) for key in keys]
        lengths = {r["train_length"] for r in chosen if r.get("train_length")}
        found.append(Block(protocol, facts, columns, rows, lengths))
    return found


def _power_of_two(n: int) -> bool:
    return n & (n - 1) == 0


def _facts(protocol: str, records: list[dict]) -> str:
    measured = [r for r in records if r["status"] == "ok"]
    if measured and "accuracy" in measured[0]:
        return f"{counted((r['answers'] for r in measured), 'question')} at each length"
    parts = [f"stride {span(r['stride'] for r in records)}"]
    if measured:
        parts.append(counted((r["tokens_scored"] for r in measured), "target"))
        if protocol == "fixed":
            parts[-1] += (
                f" in blocks of {span(r['length'] - r['min_context'] + 1 for r in measured)}"
            )
        parts.append(counted((r["documents"] for r in measured), "document"))
        seeds = {r["seed"] for r in measured if r.get("seed") is not None}
        if seeds:
            parts.append(counted([len(seeds)], "seed"))
        parts.append(f"intervals over {cluster_span(measured)}")
    return ", ".join(parts)


def cluster_span(records: list[dict]) -> str:
    """The clusters of ok records: "12 documents", "37-151 windows", or both kinds."""
    kinds: dict[str, list[int]] = {}
    for record in records:
        count, kind = record["clusters"].split()
        kinds.setdefault(kind, []).append(int(count))
    return " or ".join(counted(counts, kind.rstrip("s")) for kind, counts in kinds.items())


def span(values: Iterable[int | None]) -> str:
    """One number, the range of several, or "-" for none."""
    values = {value for value in values if value is not None}
    if not values:
        return "-"
    return f"{min(values)}-{max(values)}" if len(values) > 1 else f"{min(values)}"


def counted(values: Iterable[int], noun: str) -> str:
    """The span of the numbers with its noun: "1 document", "37-151 windows"."""
    number = span(values)
    return f"{number} {noun}" if number == "1" else f"{number} {noun}s"


def troubles(records: list[dict]) -> list[str]:
    """One line per run, scheme, protocol and reason that is not ok, with the lengths concerned."""
    found: dict[tuple, list[int]] = {}
    for r in records:
        if r["status"] != "ok":
            key = (r.get("run"), r.get("scheme"), r["protocol"], r["status"], r["reason"])
            found.setdefault(key, []).append(r["length"])
    return [
        f"{run} {scheme}, {protocol} {', '.join(map(str, lengths))}: {status}: {reason}"
        for (run, scheme, protocol, status, reason), lengths in found.items()
    ]


def format_table(records: list[dict]) -> str:
    """The table that ends a run: one block per protocol, rows (run, scheme), columns lengths."""
    lines = []
    for block in blocks(records):
        header = ["run", "scheme", *map(block.header, block.columns)]
        body = [[str(run), str(scheme), *map(_cell, cells)] for run, scheme, cells in block.rows]
        widths = [max(map(len, column)) for column in zip(header, *body, strict=True)]
        lines.append(f"{block.protocol}: {block.units}, {block.facts}")
        for row in [header, *body]:
            names = [text.ljust(width) for text, width in zip(row[:2], widths, strict=False)]
            figures = [text.rjust(w) for text, w in zip(row[2:], widths[2:], strict=True)]
            lines.append("  ".join(names + figures).rstrip())
        if any("*" in name for name in header):
            lines.append("* training length")
        lines.append("")
    return "\n".join(lines + troubles(records)).rstrip() + "\n"


def _cell(record: dict | None) -> str:
    if record is None:
        return "-"
    if record["status"] != "ok":
        return MARKS[record["status"]]
    return f"{record.get('accuracy', record['nll']):.3f}"
