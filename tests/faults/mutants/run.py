"""Break the code one recorded fault at a time, and see that the tests named with it fail.

    python tests/faults/mutants/run.py [--rooms=models,data] [--only=WORDS] [--jobs=2] [--record=FILE]

ROOM.jsonl beside this file holds one fault a line: in `file` the text `old`, which occurs there
once, becomes `new`; `tests` is what pytest is given, `marks` its marker expression where it is not
the default one, `fault` says in words what is broken. Each is put into a copy of the tracked files,
never into these. Killed: the tests ran and failed, as they pass on the code as it is. The exit
status is 1 if a fault survives, 2 if a record is no use: stale, or of tests that fail anyway.
"""

import argparse
import json
import os
import queue
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FIELDS = {"file", "old", "new", "tests", "fault"}
MINUTES = 15  # a run of tests that takes longer says nothing


def read_rooms(names: list[str] | None = None) -> dict[str, list[dict]]:
    """room -> its records, of all rooms or of those named. ValueError names the line that is none."""
    rooms = {path.stem: path for path in sorted(HERE.glob("*.jsonl"))}
    unknown = set(names or ()) - set(rooms)
    if unknown:
        raise ValueError(f"--rooms={','.join(sorted(unknown))}: there are {', '.join(rooms)}")
    records = {}
    for room in names or rooms:
        records[room] = []
        for number, line in enumerate(rooms[room].read_text().splitlines(), 1):
            try:
                record = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{rooms[room].name}:{number}: {error}") from error
            if set(record) - {"marks"} != FIELDS:
                raise ValueError(
                    f"{rooms[room].name}:{number}: the fields are {', '.join(sorted(FIELDS))} and perhaps marks"
                )
            records[room].append(record)
    return records


def mutated(record: dict, root: Path = ROOT) -> str:
    """The text of the record's file with its fault. ValueError where the record no longer fits."""
    path = root / record["file"]
    text = path.read_text() if path.is_file() else ""
    count = text.count(record["old"])
    if count != 1:
        raise ValueError(
            f"stale record: {record['old']!r} occurs {count} times in {record['file']}"
        )
    return text.replace(record["old"], record["new"])


def copy_tree(to: Path) -> None:
    """The files that git tracks, or would if they were added, as they are now."""
    git = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, to / name)


def run_tests(root: Path, tests: str, marks: str | None) -> tuple[int, str]:
    """The exit status of pytest in this tree, 1 being "tests failed", and the end of what it said."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    command += (["-m", marks] if marks else []) + shlex.split(tests)
    # No bytecode: a file changed twice in a second to texts of one size would be read from it.
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=root, env=env, capture_output=True, text=True, timeout=60 * MINUTES
        )
    except subprocess.TimeoutExpired:
        return -1, f"no end after {MINUTES} minutes"
    return done.returncode, "\n".join((done.stdout + done.stderr).splitlines()[-15:])


def try_fault(root: Path, record: dict) -> tuple[str, str]:
    """killed, survived or error, and what there is to say; the tree is left as it was."""
    path = root / record["file"]
    try:
        broken = mutated(record, root)
    except ValueError as error:
        return "error", str(error)
    whole = path.read_text()
    path.write_text(broken)
    try:
        status, said = run_tests(root, record["tests"], record.get("marks"))
    finally:
        path.write_text(whole)
    if status == 1:
        return "killed", ""
    if status == 0:
        return "survived", f"{record['tests']}: {record['old']!r} -> {record['new']!r}"
    return "error", f"pytest ended with {status}, which is no failed test:\n{said}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Break the code on purpose: the tests must see it."
    )
    parser.add_argument("--rooms", help="of these files only, as in models,data")
    parser.add_argument("--only", default="", help="faults with these words, or in files so named")
    parser.add_argument("--jobs", type=int, default=2, help="test runs at a time (2)")
    parser.add_argument(
        "--record", type=Path, help="where to write the counts, a JSON object a room"
    )
    given = parser.parse_args()
    try:
        rooms = read_rooms(given.rooms.split(",") if given.rooms else None)
    except ValueError as error:
        parser.error(str(error))
    for room, records in rooms.items():
        rooms[room] = [r for r in records if given.only in r["fault"] or given.only in r["file"]]
    chosen = [(room, record) for room, records in rooms.items() for record in records]
    jobs = max(1, given.jobs)
    outcomes: dict[str, Counter] = {room: Counter() for room in rooms}
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(jobs) as pool:
        trees: queue.Queue[Path] = queue.Queue()
        for i in range(jobs):
            copy_tree(Path(folder) / str(i))
            trees.put(Path(folder) / str(i))

        def in_a_tree(function, *args):
            tree = trees.get()
            try:
                return function(tree, *args)
            finally:
                trees.put(tree)

        named = list(dict.fromkeys((r["tests"], r.get("marks")) for _, r in chosen))
        sound = set()
        for tests, (status, said) in zip(
            named, pool.map(lambda tests: in_a_tree(run_tests, *tests), named), strict=True
        ):
            if status == 0:
                sound.add(tests)
            else:
                print(
                    f"these tests do not pass on the code as it is: {tests[0]}\n{said}", flush=True
                )
        useful = [(room, r) for room, r in chosen if (r["tests"], r.get("marks")) in sound]
        for room in rooms:
            outcomes[room]["error"] = len(rooms[room]) - sum(room == of for of, _ in useful)
        for (room, record), (outcome, said) in zip(
            useful, pool.map(lambda item: in_a_tree(try_fault, item[1]), useful), strict=True
        ):
            outcomes[room][outcome] += 1
            line = f"{outcome:9}{room}: {record['fault']}"
            print(f"{line}\n         {said}" if said else line, flush=True)
    for room, count in outcomes.items():
        print(f"{room}: killed {count['killed']} of {len(rooms[room])}")
    if given.record:
        lines = (
            {"room": room, "mutants": len(rooms[room]), "killed": count["killed"]}
            for room, count in outcomes.items()
        )
        given.record.write_text("".join(json.dumps(line) + "\n" for line in lines))
    total = sum(outcomes.values(), Counter())
    return 2 if total["error"] else 1 if total["survived"] else 0


if __name__ == "__main__":
    sys.exit(main())
