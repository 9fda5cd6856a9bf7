"""OUT as several evaluations, kills and full disks leave it: nothing finished is lost or measured twice."""

import errno
import io
import json
import os
import re
import subprocess
import sys
import threading
import types
import zipfile

import numpy as np
import pytest

import evaluation
from evaluation import collection, measuring, records, sharing
from evaluation.collection import Collection, NotWritten
from evaluation.diagnostics import read_diagnostics

ABOUT = {"run": "runs/a", "scheme": "rope", "seed": 0, "step": 9, "train_length": 16}
ABOUT |= {"config_hash": "c", "weights": "w"}
TOKENIZER = types.SimpleNamespace(token_bytes=np.ones(9, np.int64), name="byte")


class Score:
    """A model whose loss grows with a window's length; counts the lengths that it is asked for."""

    def __init__(self, ends_at=None, shift=0.0):
        self.lengths, self.ends_at, self.shift = [], ends_at, shift

    def __call__(self, tokens):
        length = tokens.shape[1] - 1
        if length not in self.lengths:
            self.lengths.append(length)
        if length == self.ends_at:
            raise KeyboardInterrupt
        return self.shift + tokens[:, 1:] / 7 + length

    def factor(self, length):
        return length / 16


def texts(seed=0):
    random = np.random.default_rng(seed)
    return [random.integers(0, 9, 200).astype(np.int32) for _ in range(10)]


def measured(out, score, keep=True, protocol="fixed", lengths=(16, 32, 64), about=ABOUT, text=0):
    """What one evaluation of one curve leaves in OUT: its records."""
    out.mkdir(exist_ok=True)
    task = measuring.Task(dict(about), None, TOKENIZER, score, protocol, list(lengths), None, 8)
    documents = texts(text)
    task.read(documents, measuring.text_fingerprint(documents))
    found = Collection(out, keep)
    try:
        measuring.measure(task, found)
    finally:
        found.write()
    return evaluation.read_records(out)


def figures(rows):
    return {(r["run"], r["scheme"], r["protocol"], r["length"]): r["nll"] for r in rows}


@pytest.mark.parametrize("protocol", ["fixed", "disjoint", "sliding", "position"])
def test_what_is_finished_is_not_measured_again(tmp_path, protocol, capsys):
    whole = figures(measured(tmp_path / "whole", Score(), protocol=protocol))
    first, second, third = Score(ends_at=64), Score(), Score()
    with pytest.raises(KeyboardInterrupt):
        measured(tmp_path / "out", first, protocol=protocol)
    assert figures(measured(tmp_path / "out", second, protocol=protocol)) == whole
    done = [] if protocol == "position" else [16, 32]
    assert first.lengths == [*done, 64] and not set(second.lengths) & (set(done) - {16})
    assert 64 in second.lengths and (16 in second.lengths) == (protocol == "fixed")  # cropped
    capsys.readouterr()
    before = (tmp_path / "out" / "records.jsonl").read_bytes()
    measured(tmp_path / "out", third, protocol=protocol)
    assert third.lengths == [] and (tmp_path / "out" / "records.jsonl").read_bytes() == before
    assert capsys.readouterr().err == (
        f"runs/a  rope  {protocol}: kept: {len(whole)} measured before\n"
    )
    assert measured(tmp_path / "out", fourth := Score(), keep=False, protocol=protocol)
    assert 64 in fourth.lengths and (protocol == "position" or 32 in fourth.lengths)


@pytest.mark.parametrize(
    "change", ["weights", "step", "seed", "config_hash", "text", "targets", "longest", "losses"]
)
def test_what_was_measured_otherwise_is_measured_again(tmp_path, change):
    measured(tmp_path, Score())
    about, given = dict(ABOUT), {}
    if change in about:
        about[change] = 3 if change in ("step", "seed") else "other"
    elif change == "text":
        given = {"text": 1}
    elif change == "longest":
        given = {"lengths": (16, 32, 48)}
    elif change == "losses":
        (tmp_path / "targets.npz").unlink()
    else:
        rows = [r | {"targets": 4} for r in evaluation.read_records(tmp_path)]
        evaluation.write_records(tmp_path, rows, evaluation.read_targets(tmp_path))
    score = Score(shift=1.0)
    found = measured(tmp_path, score, about=about, **given)
    assert score.lengths[:2] == [16, 32] and len(found) == 4
    wanted = measured(tmp_path / "new", Score(shift=1.0), about=about, **given)
    assert figures(found) == figures(wanted)
    backed = collection.backed(found, evaluation.read_targets(tmp_path))
    assert len(backed["runs/a", "rope"]) == 4


def test_a_point_that_failed_is_tried_again(tmp_path):
    class Broken(Score):
        def __call__(self, tokens):
            if tokens.shape[1] == 33:
                raise RuntimeError("no")
            return super().__call__(tokens)

    statuses = [r["status"] for r in measured(tmp_path, Broken())]
    assert statuses == ["ok", "failed", "ok", "ok"]
    score = Score()
    rows = measured(tmp_path, score)
    assert score.lengths == [32] and {r["status"] for r in rows} == {"ok"} and len(rows) == 4


def test_points_of_two_checkpoints_or_texts_are_no_curve(tmp_path):
    """A further length of another checkpoint, or under disjoint of another text, ends the earlier points."""
    measured(tmp_path, Score(), protocol="disjoint")
    rows = measured(tmp_path, Score(), protocol="disjoint", lengths=(128,))
    assert [r["length"] for r in rows] == [16, 32, 64, 128]
    rows = measured(tmp_path, Score(), protocol="disjoint", lengths=(100,), text=1)
    assert [r["length"] for r in rows] == [100]
    measured(tmp_path, Score(), protocol="sliding", lengths=(32,))
    rows = measured(
        tmp_path, Score(), protocol="disjoint", lengths=(16,), about=ABOUT | {"weights": "v"}
    )
    assert [(r["protocol"], r["weights"]) for r in rows] == [("disjoint", "v")]
    other = ABOUT | {"scheme": "pi", "weights": "u"}
    assert len(measured(tmp_path, Score(), protocol="disjoint", lengths=(16,), about=other)) == 2
    rows = measured(tmp_path / "p", Score(), protocol="position", lengths=(50,))
    rows = measured(tmp_path / "p", Score(), protocol="position", lengths=(64,))
    assert {r["stride"] for r in rows} == {64} and 50 not in [r["length"] for r in rows]


def test_records_say_what_was_measured_on_what(tmp_path):
    rows = measured(tmp_path, Score())
    text = measuring.text_fingerprint(texts())
    for r in rows:
        assert (r["weights"], r["text"], r["targets"], r["longest"]) == ("w", text, 8, 64)
    assert [r["factor"] for r in rows] == [1, 2, 4, 1]
    (*_, last) = measured(tmp_path / "p", Score(), protocol="position")
    assert (last["length"], last["factor"], last["targets"] if "targets" in last else None) == (
        64, 4, None,
    )  # fmt: skip
    rows = measured(tmp_path / "p", Score(), protocol="position", lengths=(16, 32))
    assert {r["factor"] for r in rows} == {2} and rows[0]["length"] == 1


def test_fingerprints_tell_texts_and_weights_apart():
    one, text = texts(), measuring.text_fingerprint
    assert text(one) == text([d.astype(np.uint16) for d in one]) and len(text(one)) == 16
    joined = [np.concatenate(one[:2]), *one[2:]]
    other = [one[0].copy(), *one[1:]]
    other[0][7] ^= 1
    assert len({text(one), text(joined), text(other), text(one[::-1]), text(one[:-1])}) == 5
    weights = measuring.weights_fingerprint
    params = {"a": np.ones((2, 3), np.float32), "b": np.zeros(4, np.float32)}
    same = {"b": params["b"], "a": np.asfortranarray(params["a"])}
    assert weights(params) == weights(same)
    others = [
        {"a": params["a"]},
        params | {"b": np.array([0, 0, 0, 1e-9], np.float32)},
        params | {"a": np.ones((3, 2), np.float32)},
        {"a": params["a"], "c": params["b"]},
        params | {"b": np.zeros(4, np.int32)},
    ]
    assert len({weights(p) for p in [params, *others]}) == 6


def test_evaluations_at_work_on_one_folder_keep_each_others_points(tmp_path):
    first, second = Collection(tmp_path, keep=True), Collection(tmp_path, keep=True)
    made = {}
    for found, scheme in ((first, "rope"), (second, "pi"), (first, "yarn")):
        losses = {}
        swept = evaluation.sweep(Score(), texts(), [16, 32], targets=8, details=losses)
        for r in swept:
            point = {k: v for k, v in losses.items() if k == (r["protocol"], r["length"])}
            found.add([ABOUT | {"scheme": scheme, "longest": 32} | r], point)
        found.add_diagnostics([{"run": "runs/a", "scheme": scheme, "length": 16}])
        made |= figures([ABOUT | {"scheme": scheme} | r for r in swept])
    assert figures(evaluation.read_records(tmp_path)) == made
    assert set(evaluation.read_targets(tmp_path)) == {("runs/a", s) for s in ("rope", "pi", "yarn")}
    assert [r["scheme"] for r in read_diagnostics(tmp_path)] == ["rope", "pi", "yarn"]


def test_what_is_replaced_goes_with_the_first_write_and_what_others_add_stays(tmp_path):
    measured(tmp_path, Score())
    (tmp_path / "diagnostics.jsonl").write_text(
        '{"run": "runs/a", "scheme": "rope", "length": 16}\n'
    )
    old = (tmp_path / "records.jsonl").read_bytes()
    anew = Collection(tmp_path, keep=False)
    assert anew.replaced and (tmp_path / "records.jsonl").read_bytes() == old
    assert anew.read() == ([], {}, [])
    measured(tmp_path, Score(), about=ABOUT | {"scheme": "pi"})  # beside it, with --append
    swept = evaluation.sweep(Score(), texts(), [16], "disjoint")
    anew.add([ABOUT | {"scheme": "t5"} | r for r in swept], {})
    assert {r["scheme"] for r in evaluation.read_records(tmp_path)} == {"pi", "t5"}
    assert set(evaluation.read_targets(tmp_path)) == {("runs/a", "pi")}
    assert not (tmp_path / "diagnostics.jsonl").exists()


def test_broken_files_do_not_stop_what_replaces_them(tmp_path):
    (tmp_path / "records.jsonl").write_bytes(b"\xff\n")
    (tmp_path / "targets.npz").write_bytes(b"no")
    (tmp_path / "diagnostics.jsonl").write_bytes(b"{")
    assert len(measured(tmp_path, Score(), keep=False)) == 4


def test_writing_takes_a_tenth_of_the_time_however_long_it_takes(tmp_path, monkeypatch):
    clock, writes = [100.0], []

    def write_records(*given):
        writes.append(len(given[1]))
        clock[0] += 2

    monkeypatch.setattr(collection.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(collection, "write_records", write_records)
    found = Collection(tmp_path, keep=True)
    for number in range(1, 7):
        clock[0] += 5
        (r,) = evaluation.sweep(Score(), texts(), [number], "disjoint")
        found.add([ABOUT | r], {})
    assert writes == [1, 4]  # at once, and again when 18 seconds of work have followed
    found.write()
    assert writes == [1, 4, 1]
    found.write()
    assert writes == [1, 4, 1] and found.statuses == ["ok"] * 6


def test_killed_between_losses_and_records_the_losses_alone_are_dropped(tmp_path, monkeypatch):
    whole = measured(tmp_path / "whole", Score())
    real = records.replacing

    def killed(path):
        if path.name == "records.jsonl" and (path.parent / "targets.npz").exists():
            raise SystemExit
        return real(path)

    out = tmp_path / "out"
    for _ in range(3):  # the third write is of what the first left over
        monkeypatch.setattr(records, "replacing", killed)
        with pytest.raises(SystemExit):
            measured(out, Score())
        monkeypatch.setattr(records, "replacing", real)
        assert evaluation.read_targets(out) and not (out / "records.jsonl").exists()
    assert figures(measured(out, score := Score())) == figures(whole)
    assert score.lengths == [16, 32, 64]


def test_losses_of_another_measurement_are_not_taken_for_the_records(tmp_path):
    rows = measured(tmp_path, Score())
    targets = evaluation.read_targets(tmp_path)
    assert collection.backed(rows, targets).keys() == targets.keys()
    points = targets["runs/a", "rope"]
    other = {key: p | {"nll": p["nll"] + 1e-6} for key, p in points.items()}
    assert collection.backed(rows, {("runs/a", "rope"): other}) == {}
    fewer = {key: {name: a[:-1] for name, a in p.items()} for key, p in points.items()}
    assert collection.backed(rows, {("runs/a", "rope"): fewer}) == {}
    assert collection.backed([], targets) == {}
    failed = [r | {"status": "failed"} for r in rows]
    assert collection.backed(failed, targets) == {}


@pytest.mark.parametrize("name", ["targets.npz", "records.jsonl", "curves.csv"])
def test_a_full_disk_is_one_line_and_leaves_whole_files(tmp_path, monkeypatch, name):
    before = measured(tmp_path, Score())
    real, full = records.replacing, OSError(errno.ENOSPC, "No space left on device")

    def replacing(path):
        if path.name == name:
            raise full
        return real(path)

    monkeypatch.setattr(records, "replacing", replacing)
    with pytest.raises(NotWritten) as caught:
        measured(tmp_path, Score(), about=ABOUT | {"scheme": "pi"})
    assert f"{tmp_path} cannot be written" in str(caught.value)
    assert "No space left" in str(caught.value) and "\n" not in str(caught.value)
    monkeypatch.setattr(records, "replacing", real)
    assert [p for p in os.listdir(tmp_path) if p.startswith(".")] == []
    score = Score()
    rows = measured(tmp_path, score, about=ABOUT | {"scheme": "pi"})
    assert len(rows) == 8 and figures(rows).items() >= figures(before).items()


def test_a_limit_on_file_sizes_ends_in_one_error_and_no_noise(tmp_path):
    """Real writes that fail half-way: whole files, no temporary ones, nothing on stderr."""
    measured(tmp_path, Score())
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    program = """
import resource, sys
sys.path[:0] = ["tests", "."]
from test_evaluation_sharing import *
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))
try:
    measured(__import__("pathlib").Path(sys.argv[1]), Score(), about=ABOUT | {"scheme": "pi"})
except NotWritten as error:
    print(error)
"""
    words = [sys.executable, "-c", program, tmp_path]
    root = os.path.dirname(os.path.dirname(__file__))
    done = subprocess.run(words, capture_output=True, text=True, cwd=root)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "cannot be written ([Errno 27] File too large" in done.stdout
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_one_writes_at_a_time(tmp_path):
    inside, order = threading.Event(), []

    def other():
        inside.wait()
        with sharing.writing_alone(tmp_path):
            order.append("other")

    thread = threading.Thread(target=other)
    thread.start()
    with sharing.writing_alone(tmp_path):
        inside.set()
        thread.join(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "other"] and list(tmp_path.iterdir()) == []


def test_many_writers_wait_for_each_other(tmp_path):
    """The lock's file is removed and made again all the time: still one at a time."""
    (tmp_path / "count").write_text("0")

    def count():
        for _ in range(25):
            with sharing.writing_alone(tmp_path):
                number = int((tmp_path / "count").read_text())
                (tmp_path / "count").write_text(str(number + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tmp_path / "count").read_text() == "100"


def test_another_at_work_is_named_and_a_dead_one_is_not(tmp_path):
    host = os.uname().nodename
    with sharing.at_work(tmp_path, alone=True):
        with pytest.raises(ValueError) as caught, sharing.at_work(tmp_path, alone=True):
            pass
        assert f"process {os.getpid()} on {host} is evaluating into this folder" in str(
            caught.value
        )
        assert "--append" in str(caught.value)
        assert [p.name for p in tmp_path.iterdir()] == [f".evaluating.{host}.{os.getpid()}"]
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".evaluating.elsewhere.7").touch()  # as a kill leaves it, with what it was writing
    (tmp_path / ".records.7.jsonl").touch()
    (tmp_path / ".kept").touch()
    with sharing.at_work(tmp_path, alone=True):
        names = {p.name for p in tmp_path.iterdir()}
        assert names == {".kept", f".evaluating.{host}.{os.getpid()}"}


def test_without_locks_work_goes_on(tmp_path, monkeypatch):
    for lacking in (None, types.SimpleNamespace(LOCK_EX=2, LOCK_NB=4, flock=refuse)):
        monkeypatch.setattr(sharing, "fcntl", lacking)
        with sharing.at_work(tmp_path, alone=True), sharing.writing_alone(tmp_path):
            assert (tmp_path / ".lock").exists()
        assert list(tmp_path.iterdir()) == []


def refuse(*given):
    raise OSError(errno.ENOLCK, "no locks")


def npz(path, change):
    """A targets.npz as `write_records` makes it, with each member's bytes put through `change`."""
    parts = {}
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            parts[name] = archive.read(name)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(*change(name, content))


def saved(array, **how):
    stream = io.BytesIO()
    np.save(stream, array, **how)
    return stream.getvalue()


def enlarge(name, content):
    """The same bytes, said to be sixteen terabytes."""
    header, padding, data = re.fullmatch(rb"(.*?\})( *\n)(.*)", content, re.DOTALL).groups()
    larger = re.sub(rb"'shape': \(\d+,\)", b"'shape': (2000000000000,)", header)
    return name, larger + padding[len(larger) - len(header) :] + data


@pytest.mark.parametrize(
    "change, message",
    [
        (enlarge, "is said to be float64 (2000000000000,)"),
        (lambda name, content: (name, content[:-8]), "is said to be"),
        (lambda name, content: (name, content + b"more"), "is said to be"),
        (lambda name, content: (name, b"\x93NUMPY\x03\x00" + content[8:]), "of a format"),
        (lambda name, content: (name, saved(np.array([print]), allow_pickle=True)), "object"),
        (lambda name, content: (name, saved(np.zeros((2, 2)))), "(2, 2)"),
        (lambda name, content: (name, saved(np.zeros(20, ">f8"))), "is said to be"),
        (lambda name, content: ("a.npy", content), ""),
        (lambda name, content: ("a|b|c.npy", saved(np.zeros(3))), ""),
        (lambda name, content: (name.replace("clusters", "a|b|1"), saved(np.zeros(3))), "clusters"),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_damaged_losses_are_one_line_that_names_the_file(tmp_path, change, message):
    measured(tmp_path, Score(), lengths=(16,))
    npz(tmp_path / "targets.npz", change)
    with pytest.raises(ValueError) as caught:
        evaluation.read_targets(tmp_path)
    assert f"{tmp_path}/targets.npz is broken (" in str(caught.value) and message in str(
        caught.value
    )
    assert "\n" not in str(caught.value)


def test_every_cut_and_many_flipped_bits_of_the_losses_are_noticed(tmp_path):
    rows = measured(tmp_path, Score(), lengths=(16,))
    path = tmp_path / "targets.npz"
    whole = path.read_bytes()
    random = np.random.default_rng(0)
    for size in range(0, len(whole), 97):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match="targets.npz is broken"):
            evaluation.read_targets(tmp_path)
    for _ in range(200):
        place, bit = random.integers(len(whole)), random.integers(8)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        try:
            found = collection.backed(rows, evaluation.read_targets(tmp_path))
        except ValueError as error:
            assert "targets.npz is broken" in str(error)
            continue
        for points in found.values():  # the flipped bit says nothing: a date, a flag of the archive
            assert all(p["nll"].mean() == pytest.approx(rows[0]["nll"]) for p in points.values())


def test_nothing_is_decompressed(tmp_path):
    with zipfile.ZipFile(tmp_path / "targets.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("clusters.npy", saved(np.zeros(10**6, np.int64)))
    with pytest.raises(ValueError, match="compressed"):
        evaluation.read_targets(tmp_path)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"\xff\xfe\n", "line 2 is not a JSON object: 'utf-8' codec"),
        (b"{\n", "line 2 is not a JSON object"),
        (b"[" * 100000, "line 2 is not a JSON object"),
        (b"[1]\n", "line 2 is not a JSON object: [1]"),
        (b"\n", "line 2 is not a JSON object"),
        ({"run": 3}, "line 2: run=3 is none of ours"),
        ({"run": None}, "line 2: run=None is none of ours"),
        ({"scheme": ...}, "line 2 has no field scheme"),
        ({"status": ...}, "line 2 has no field status"),
        ({"status": "fine"}, "line 2: status='fine' is none of ours"),
        ({"length": "64"}, "line 2: length='64' is none of ours"),
        ({"length": 0}, "line 2: length=0 is none of ours"),
        ({"length": True}, "line 2: length=True is none of ours"),
        ({"nll": None}, "line 2: nll=None is none of ours"),
        ({"nll": "low"}, "line 2: nll='low' is none of ours"),
        ({"nll": ...}, "line 2 has no field nll"),
        ({"clusters": 10}, "line 2: clusters=10 is none of ours"),
        ({"seed": "0"}, "line 2: seed='0' is none of ours"),
        ({"train_length": [16]}, "line 2: train_length=[16] is none of ours"),
        ({"protocol": None}, "line 2: protocol=None is none of ours"),
    ],
)
def test_damaged_records_are_one_line_that_names_file_line_and_field(tmp_path, content, message):
    rows = measured(tmp_path, Score(), lengths=(16, 32))
    if isinstance(content, dict):
        row = {k: v for k, v in (rows[1] | content).items() if v is not ...}
        content = json.dumps(row).encode() + b"\n"
    lines = (tmp_path / "records.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "records.jsonl").write_bytes(lines[0] + content + b"".join(lines[2:]))
    with pytest.raises(ValueError) as caught:
        Collection(tmp_path, keep=True)
    assert f"{tmp_path}/records.jsonl, {message}" in str(caught.value)


@pytest.mark.parametrize("content", [b"\xff\n", b"5\n", b'{"run": "a"}\n', b'{"run": 1}\n'])
def test_damaged_diagnostics_are_named_too(tmp_path, content):
    measured(tmp_path, Score(), lengths=(16,))
    (tmp_path / "diagnostics.jsonl").write_bytes(content)
    with pytest.raises(ValueError, match="diagnostics.jsonl, line 1"):
        Collection(tmp_path, keep=True)


def test_a_name_may_hold_any_character(tmp_path):
    """U+2028 ends a line for str.splitlines, not for JSON."""
    name = "runs/a\u2028b\u0085|c\x0b"
    about = ABOUT | {"run": name}
    measured(tmp_path, Score(), about=about)
    score = Score()
    rows = measured(tmp_path, score, about=about)
    assert {r["run"] for r in rows} == {name} and score.lengths == []
