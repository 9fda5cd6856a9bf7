"""Where the figures of the benchmarks are kept, with the machine they were measured on."""

import json
from pathlib import Path

from lockstep import machine

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "performance"


def write(name: str, records: list[dict]) -> None:
    """docs/performance/NAME.jsonl anew: one object a line; they are printed too."""
    FOLDER.mkdir(exist_ok=True)
    about = machine()
    lines = [json.dumps({**record, **about}) for record in records]
    (FOLDER / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    for record in records:
        print(record)
    print(f"written to {FOLDER / name}.jsonl")
