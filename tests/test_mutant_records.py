"""The faults put in on purpose (tests/faults/mutants) still fit the code and the tests that they name."""

import ast
import re
import shlex

import pytest
from faults.mutants.run import ROOT, mutated, read_rooms, try_fault

ROOMS = read_rooms()


@pytest.mark.parametrize("room", ROOMS)
def test_each_fault_fits_the_code(room):
    for record in ROOMS[room]:
        broken = mutated(record)
        assert record["new"] != record["old"], record["fault"]
        if record["file"].endswith(".py"):
            ast.parse(broken)


@pytest.mark.parametrize("room", ROOMS)
def test_the_tests_named_with_a_fault_exist(room):
    for record in ROOMS[room]:
        # Options of pytest, as in -k "WORDS", stand behind the tests.
        tests, _, _ = record["tests"].partition(" -")
        for named in shlex.split(tests):
            file, *parts = named.split("::")
            text = (ROOT / file).read_text()
            for part in parts:
                name = part.partition("[")[0]
                assert re.search(rf"^\s*(def|class) {name}\b", text, re.M), named


def test_no_fault_is_recorded_twice():
    faults = [(r["file"], r["old"], r["new"]) for records in ROOMS.values() for r in records]
    assert len(faults) == len(set(faults))


def test_a_record_that_no_longer_fits_is_stale(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\ny = 1\n")
    record = {"file": "a.py", "old": "x = 1", "new": "x = 2"}
    assert mutated(record, tmp_path) == "x = 2\ny = 1\n"
    for stale in ({"old": "x = 3"}, {"old": "= 1"}, {"file": "b.py"}):
        with pytest.raises(ValueError, match="stale record"):
            mutated(record | stale, tmp_path)


@pytest.mark.slow
def test_only_a_failed_test_kills(tmp_path):
    (tmp_path / "a.py").write_text("x = 1\n")
    (tmp_path / "test_a.py").write_text("import a\ndef test(): assert a.x == 1\n")
    record = {"file": "a.py", "old": "x = 1", "tests": "test_a.py"}
    outcomes = [try_fault(tmp_path, record | {"new": new})[0] for new in ("x = 2", "x = 1.0", "y")]
    assert outcomes == ["killed", "survived", "error"]  # the last cannot be imported
    assert (tmp_path / "a.py").read_text() == "x = 1\n"
