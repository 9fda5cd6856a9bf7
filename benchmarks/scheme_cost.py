"""What each position scheme adds to a training step: every one beside `nope`, taking turns with it.

    .venv/bin/python benchmarks/scheme_cost.py [--steps=30] [--schemes=rope,alibi]

Writes docs/performance/scheme_cost.jsonl; docs/build.py makes the table of docs/performance.md from it.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import lockstep
from absl import app, flags
from records import write

STEPS = flags.DEFINE_integer("steps", 30, "timed steps of each")
SCHEMES = flags.DEFINE_string("schemes", "", "separated by commas (default: all)")

LENGTH, WINDOWS = 128, 16
TOGETHER = 5  # schemes in one race, which share memory and caches
REFERENCE = "ours:nope"
LISTS = "/".join(["1"] * 16)
SPECS = {
    "longrope": f"longrope:short_factor={LISTS},long_factor={LISTS}",
    "window": "window:size=64",
}


def main(_) -> None:
    from posenc import SCHEMES as REGISTERED

    wanted = [name for name in SCHEMES.value.split(",") if name] or list(REGISTERED)
    wanted = [f"ours:{SPECS.get(name, name)}" for name in wanted if name != "nope"]
    records = []
    for first in range(0, len(wanted), TOGETHER):
        race = [REFERENCE, *wanted[first : first + TOGETHER]]
        seconds = lockstep.race(race, [str(LENGTH), str(WINDOWS)], STEPS.value, sys.executable)
        records += lockstep.compare(seconds, REFERENCE)[1:]
        print(*records[-TOGETHER:], sep="\n", flush=True)
    write("scheme_cost", [{**record, "tokens": LENGTH * WINDOWS} for record in records])


if __name__ == "__main__":
    app.run(main)
