"""Write every generated part of the documents: tables and figures come from records, never from a keyboard.

    python docs/build.py [--check]

For each folder of docs/results with a records.jsonl it draws curves.svg and curves.png beside it.
It writes docs/gallery.md and the pictures of docs/gallery.
In README.md it fills what stands between `<!-- NAME -->` and `<!-- /NAME -->`. --check writes
nothing and fails if README.md is not up to date.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from evaluation.plots import plot_curves  # noqa: E402 (the root is put on the path above)
from evaluation.records import read_records  # noqa: E402
from evaluation.tables import MARKS  # noqa: E402
from posenc.__main__ import COLUMNS, matrix  # noqa: E402
from posenc.gallery.pictures import write_documents  # noqa: E402

STUDY = ROOT / "docs" / "results" / "seven_schemes"


def main() -> int:
    readme = ROOT / "README.md"
    old = readme.read_text(encoding="utf-8")
    new = fill(old, "schemes", scheme_table())
    new = fill(new, "results", results_table(read_records(STUDY)))
    if "--check" in sys.argv:
        print("README.md is up to date" if new == old else "README.md differs: run docs/build.py")
        return int(new != old)
    readme.write_text(new, encoding="utf-8")
    for records in sorted((ROOT / "docs" / "results").glob("*/records.jsonl")):
        plot_curves(read_records(records), records.parent)
    write_documents(ROOT / "docs")
    return 0


def fill(text: str, name: str, content: str) -> str:
    """The text with the part between the markers of `name` replaced."""
    pattern = re.compile(f"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.DOTALL)
    if not pattern.search(text):
        raise ValueError(f"README.md has no part <!-- {name} --> … <!-- /{name} -->")
    return pattern.sub(lambda found: found[1] + content + found[2], text)


def markdown(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def scheme_table() -> str:
    rows = [
        (f"`{name}`", *middle, f"[{Path(file).name}]({file})") for name, *middle, file in matrix()
    ]
    return markdown(COLUMNS, rows)


def results_table(records: list[dict]) -> str:
    """Nats per token of the fixed targets: a row per run and scheme, a column per length, the cropped line last."""
    fixed = [r for r in records if r["protocol"] == "fixed"]
    lengths = sorted({r["length"] for r in fixed})
    cropped = {(r["run"], r["scheme"]): r for r in records if r["protocol"] == "cropped"}
    rows = []
    for run, scheme in dict.fromkeys((r["run"], r["scheme"]) for r in fixed):
        mine = {r["length"]: r for r in fixed if (r["run"], r["scheme"]) == (run, scheme)}
        name = run.rsplit("/", 1)[-1]
        cells = [cell(mine.get(n)) for n in lengths] + [cell(cropped.get((run, scheme)))]
        rows.append((f"`{scheme}`", name, str(mine[lengths[0]]["train_length"]), *cells))
    head = ("read as", "run", "trained at", *map(str, lengths), "cropped")
    return markdown(head, rows)


def cell(record: dict | None) -> str:
    if record is None:
        return ""
    return f"{record['nll']:.2f}" if record["status"] == "ok" else MARKS[record["status"]]


if __name__ == "__main__":
    sys.exit(main())
