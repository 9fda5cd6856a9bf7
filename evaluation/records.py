"""Records on disk: records.jsonl, curves.csv, positions.csv and statistics.jsonl."""

import csv
import io
import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from evaluation.tables import MARKS
from evaluation.targets import arrays_of

FIELDS = (
    "run scheme seed step protocol length stride train_length factor status reason tokens_scored "
    "windows documents clusters min_context nll_sum nll ci_low ci_high ppl bits_per_byte seconds "
    "config_hash"
).split()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place at the end, or is removed on an error."""
    temporary = path.with_name(f".{path.stem}.{os.getpid()}{path.suffix}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_records(
    out_dir: str | os.PathLike, records: Iterable[dict], details: dict | None = None
) -> None:
    """Writes the records of any number of runs; every file is complete or absent at any moment.

    records.jsonl: one object per record, the fields in the order of `FIELDS`, then any others;
      null for what is missing or not finite. curves.csv: the same, flat, empty for null.
    positions.csv: the records of protocol "position", if any: one row per bucket of positions,
      which runs from `start` to `length`.
    targets.npz: if there are details, "RUN|SCHEME|LENGTH" -> float64 [n], the nll of each fixed
      target, in one order for all; "RUN|SCHEME|cropped L", the same targets with L tokens of
      context; and "clusters" -> int64 [n], the cluster id of each target. Where targets differ
      (another tokenizer, text or ℓmax), each has "RUN|SCHEME|clusters".
    statistics.jsonl of earlier records is removed: `write_statistics` writes it anew.

    Args:
      out_dir: made if it does not exist. Files of these names are replaced.
      records: dicts as `sweep` returns them, with run, scheme, seed, step, train_length, factor
        and config_hash added.
      details: (run, scheme) -> the dict that `sweep` filled.
    """
    out_dir = Path(out_dir)
    out_dir.mkdir(parents=True, exist_ok=True)
    rows = [_row(record) for record in records]
    lines = [json.dumps(row, allow_nan=False, ensure_ascii=False) + "\n" for row in rows]
    positions = [row for row in rows if row["protocol"] == "position"]
    arrays = arrays_of(details or {})

    # Losses before the records that speak of them: ended between the two, no record lacks its own.
    if arrays:
        with replacing(out_dir / "targets.npz") as path, path.open("wb") as file:
            np.savez(file, **arrays)
    with replacing(out_dir / "records.jsonl") as path:
        path.write_text("".join(lines), encoding="utf-8")
    with replacing(out_dir / "curves.csv") as path:
        path.write_text(_csv(rows), encoding="utf-8")
    if positions:
        with replacing(out_dir / "positions.csv") as path:
            path.write_text(_csv(positions), encoding="utf-8")
    # what an earlier evaluation left under these names would pass for a part of this one
    written = {"positions.csv": positions, "targets.npz": arrays, "statistics.jsonl": None}
    for name in written:
        if not written[name]:
            (out_dir / name).unlink(missing_ok=True)


def write_statistics(out_dir: str | os.PathLike, rows: Iterable[dict]) -> None:
    """Writes statistics.jsonl, one object per row of `evaluation.compare`, or none if there are none."""
    path = Path(out_dir) / "statistics.jsonl"
    lines = [json.dumps(row, allow_nan=False, ensure_ascii=False) + "\n" for row in rows]
    if not lines:
        path.unlink(missing_ok=True)
        return
    with replacing(path) as temporary:
        temporary.write_text("".join(lines), encoding="utf-8")


def read_statistics(path: str | os.PathLike) -> list[dict]:
    """The rows in a statistics.jsonl, given itself or as the folder that may hold it; else none."""
    path = Path(path)
    path = path / "statistics.jsonl" if path.is_dir() else path
    return _read_lines(path) if path.exists() else []


def read_records(path: str | os.PathLike) -> list[dict]:
    """The records in a records.jsonl, given itself or as the folder that holds it."""
    path = Path(path)
    return _read_lines(path / "records.jsonl" if path.is_dir() else path)


def _read_lines(path: Path) -> list[dict]:
    return parsed(path, path.read_bytes().splitlines())


def parsed(path: Path, lines: list[bytes]) -> list[dict]:
    """The objects of a jsonl file. ValueError names the file and the line that is none."""
    found = []
    for number, line in enumerate(lines, 1):
        try:
            row = json.loads(line.decode())
        except (ValueError, RecursionError) as error:  # not JSON, or not UTF-8
            raise ValueError(f"{path}, line {number} is not a JSON object: {error}") from None
        if not isinstance(row, dict):
            shown = line[:40].decode(errors="backslashreplace")
            raise ValueError(f"{path}, line {number} is not a JSON object: {shown}")
        found.append(row)
    return found


NUMBER = (int, float)
# what each field of a record holds, null allowed but for the first five; others may be anything
KINDS = {
    **dict.fromkeys(("run", "scheme", "protocol", "status"), str),
    **dict.fromkeys(("length", "seed", "step", "stride", "train_length", "tokens_scored"), int),
    **dict.fromkeys(("windows", "documents", "min_context"), int),
    **dict.fromkeys(("factor", "nll_sum", "nll", "ci_low", "ci_high", "ppl"), NUMBER),
    **dict.fromkeys(("bits_per_byte", "seconds"), NUMBER),
    **dict.fromkeys(("reason", "clusters", "config_hash"), str),
}
IDENTITY = ("run", "scheme", "protocol", "length")  # of a record
FIGURES = ("nll_sum", "nll", "tokens_scored", "windows", "documents", "clusters", "min_context")


def check_fields(path: Path, rows: list[dict], needed: tuple[str, ...]) -> None:
    """ValueError that names the file, line and field where a row is none that was written here."""
    for number, row in enumerate(rows, 1):
        ok = row.get("status") == "ok" and "status" in needed
        never_null = (*needed, *FIGURES) if ok else needed
        for name in never_null:
            if name not in row:
                raise ValueError(
                    f"{path}, line {number} has no field {name}: it is no record of ours"
                )
        for name, kind in KINDS.items():
            value = row.get(name)
            fits = name not in never_null if value is None else isinstance(value, kind)
            if not fits or isinstance(value, bool) or (name == "length" and value < 1):
                shown = repr(value)[:40]
                raise ValueError(f"{path}, line {number}: {name}={shown} is none of ours")
        if "status" in needed and row["status"] not in ("ok", *MARKS):
            raise ValueError(f"{path}, line {number}: status={row['status']!r} is none of ours")


def _row(record: dict) -> dict:
    """The record in the order of the fields, as plain JSON values."""
    names = [*FIELDS, *(name for name in record if name not in FIELDS)]
    return {name: _plain(record.get(name)) for name in names}


def _plain(value: object) -> object:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _csv(rows: list[dict]) -> str:
    names = list(dict.fromkeys([*FIELDS, *(name for row in rows for name in row)]))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
