"""What may happen to a training from outside: a second one in its workdir, repeated signals, a full disk."""

import contextlib
import errno
import fcntl
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import test_loop

import train
from configs import command
from training import checkpoint, durable, lock, loop, metrics, setup, step

ROOT = Path(__file__).parent.parent


def prepared(tmp_path, **settings):
    """A small run about to train, begun as train.py does."""
    job = test_loop.prepared(tmp_path, **settings)
    job.save_config()
    return job


HOLD = "import sys, pathlib; from training import lock; lock.take(pathlib.Path(sys.argv[1])); "
HOLD += "print('held', flush=True); sys.stdin.read()"


@contextlib.contextmanager
def holder(workdir):
    """Another process that holds the lock of a workdir."""
    words = [sys.executable, "-c", HOLD, workdir]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=ROOT, **pipes) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_training_in_a_workdir_is_refused_and_a_dead_ones_lock_is_not_in_the_way(tmp_path):
    workdir = tmp_path / "run"
    workdir.mkdir()
    with holder(workdir) as other:
        before = sorted(workdir.rglob("*"))
        with pytest.raises(ValueError) as refused:
            prepared(tmp_path)
        assert f"process {other.pid} on {os.uname().nodename}, since 20" in str(refused.value)
        assert f"{workdir} is in use by another training" in str(refused.value)
        assert sorted(workdir.rglob("*")) == before
        other.kill()
        other.wait()
        assert str(other.pid) in (workdir / "lock").read_text()
    job = prepared(tmp_path, steps=1, warmup_steps=1)
    assert f"process {os.getpid()} on " in (workdir / "lock").read_text()
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, workdir], cwd=ROOT, stderr=subprocess.PIPE, text=True
    ) as second:
        assert f"process {os.getpid()} on" in second.stderr.read()
    job.checkpoints.close()
    job = prepared(tmp_path, steps=1, warmup_steps=1)  # the same process may begin again
    assert train.train(job, 1) == 0
    with holder(workdir):  # and lets go at the end
        pass


def test_broken_checkpoints_are_left_alone_while_another_trains(tmp_path):
    broken = tmp_path / "run" / "checkpoints" / "4" / "metrics"
    broken.mkdir(parents=True)
    (tmp_path / "run" / "config.json").write_text("{")
    with holder(tmp_path / "run"), pytest.raises(ValueError, match="is in use"):
        prepared(tmp_path)
    assert broken.is_dir()


def test_a_run_begun_by_another_in_the_meantime_is_not_written_over(tmp_path, monkeypatch):
    def begun(workdir):
        (workdir / "config.json").write_text("{}")

    monkeypatch.setattr(lock, "take", begun)
    with pytest.raises(ValueError, match="another run was begun in .*/run just now"):
        prepared(tmp_path)
    assert (tmp_path / "run" / "config.json").read_text() == "{}"


def test_processes_of_one_run_share_its_lock(tmp_path, monkeypatch):
    taken = []
    monkeypatch.setattr(lock, "take", taken.append)
    monkeypatch.setattr(setup.hosts, "is_chief", lambda: False)
    prepared(tmp_path)
    assert taken == []


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP])
def test_a_file_system_without_locks_is_warned_of(tmp_path, monkeypatch, number):
    def none(file, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", none)
    with pytest.warns(UserWarning, match=f"without locks .{os.strerror(number)}"):
        lock.take(tmp_path)


def test_a_folder_that_cannot_be_written_needs_no_lock(tmp_path, monkeypatch):
    def refuse(number):
        def opened(path, *how):
            raise OSError(number, os.strerror(number), str(path))

        return opened

    for number in (errno.EROFS, errno.EACCES):
        monkeypatch.setattr(lock.os, "open", refuse(number))
        assert lock.take(tmp_path) is None
    monkeypatch.setattr(lock.os, "open", refuse(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left"):
        lock.take(tmp_path)


def test_a_signal_that_comes_twice_at_once_is_one_request(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(loop.time, "monotonic", lambda: now[0])
    ended = []
    old = {s: signal.signal(s, lambda n, frame: ended.append(n)) for s in loop_signals()}
    try:
        with loop.Interrupts() as interrupts:
            assert interrupts.received is None
            for later, number in ((0, signal.SIGTERM), (0.1, signal.SIGINT), (4.9, signal.SIGTERM)):
                now[0] = 100 + later
                signal.raise_signal(number)
                assert interrupts.received == "SIGTERM" and not ended
            now[0] = 105
            signal.raise_signal(signal.SIGINT)
            assert ended == [signal.SIGINT]
            signal.raise_signal(signal.SIGTERM)
            assert ended == [signal.SIGINT, signal.SIGTERM]
    finally:
        for s, handler in old.items():
            signal.signal(s, handler)


def loop_signals():
    return (signal.SIGINT, signal.SIGTERM)


def test_a_signal_says_what_it_does_and_leaves_the_handlers_as_they_were(capfd):
    before = [signal.getsignal(s) for s in loop_signals()]
    with loop.Interrupts() as interrupts:
        assert [signal.getsignal(s) for s in loop_signals()] == [interrupts.note] * 2
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(s) for s in loop_signals()] == before
    said = "SIGINT: saving a checkpoint; send the signal again to abandon it\n"
    assert capfd.readouterr().err == said


class Clock:
    """Time that passes only where a test says so."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(loop.time, "perf_counter", lambda: self.now)

    def taking(self, seconds, function):
        def taken(*given):
            self.now += seconds
            return function(*given)

        return taken


@pytest.mark.parametrize(
    "every, speeds",
    [
        ({"eval_every": 1}, [None, 128 / 2, 128 / 2, 128 / 4]),
        ({"save_every": 1}, [None, 128 / 2, 128 / 2, 128 / 4]),
        ({"eval_every": 2}, [None, 128 / 2, 128 / 2, 128 / 4]),
        ({}, [None, 128 / 2, 128 / 2, 128 / 4]),
        ({"eval_every": 3, "log_every": 4}, [3 * 128 / 8]),
    ],
)
def test_speed_is_of_the_steps_alone(tmp_path, monkeypatch, every, speeds):
    """Of 2, 2 and 4 s after the first, which compiles for 50; a validation takes 1000 s, a save 300."""
    job = prepared(tmp_path, steps=4, warmup_steps=1, **every)
    clock = Clock(monkeypatch)
    seconds = iter([50, 2, 2, 4])

    stub(monkeypatch, lambda: {"loss": Slow(clock, next(seconds))}, clock.taking(1000, lambda: 2.0))
    monkeypatch.setattr(job.checkpoints, "save", clock.taking(300, lambda *given: None))
    assert train.train(job, 4) == 0
    lines = [json.loads(m) for m in (job.workdir / "metrics.jsonl").read_text().splitlines()]
    assert [m["tokens_per_second"] for m in lines if "loss" in m] == pytest.approx(speeds)


def stub(monkeypatch, found, validated=lambda: 2.0):
    """Training whose steps do nothing and find `found()`, and whose validation loss is `validated()`."""

    def train_step(state, batch):
        return state, {"loss": 3.0, "lr": 0.1, "grad_norm": 1.0, "finite": True, **found()}

    monkeypatch.setattr(step, "make_train_step", lambda graph, config: train_step)
    monkeypatch.setattr(setup, "make_validation", lambda job: lambda params: validated())


class Slow:
    """A number on the device that is ready some seconds after it is asked for."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, seconds

    def __float__(self):
        self.clock.now += self.seconds
        return 3.0


@contextlib.contextmanager
def largest_file(size):
    """No file of this process may grow beyond `size` bytes, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_ends_a_training_in_one_line(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(sys, "unraisablehook", command.unraisable)
    settings = {"steps": 40, "save_every": 1, "keep": 3}
    job = prepared(tmp_path, **settings, stop_at=2)
    assert train.train(job, 2) == 0
    job = prepared(tmp_path, **settings)
    capfd.readouterr()
    with largest_file(6000):
        assert train.train(job, 40) == 1
    said = capfd.readouterr().err
    assert said.startswith(f"train.py: {job.workdir} cannot be written: File too large (disk /")
    assert said.endswith(
        "the newest checkpoint is of step 2; make room and start again to continue\n"
    )
    assert "Traceback" not in said
    assert checkpoint.find_step(job.workdir, "latest") == 2
    steps = [
        json.loads(m)["step"] for m in (job.workdir / "metrics.jsonl").read_text().splitlines()
    ]
    assert max(steps) < 12  # noticed soon, not at the end
    job = prepared(tmp_path, **settings)
    assert job.step == 2
    job.checkpoints.close()


def test_a_full_disk_under_the_metrics_is_told(tmp_path, capsys):
    job = prepared(tmp_path, steps=3, warmup_steps=1)
    with largest_file(300):
        assert train.train(job, 3) == 1
    said = capsys.readouterr().err
    assert f"train.py: {job.workdir} cannot be written: File too large (disk " in said
    assert said.count("\n") == 1 and "no checkpoint yet" in said
    assert (job.workdir / "metrics.jsonl").stat().st_size == 300  # cut short
    with pytest.warns(UserWarning, match="was ended at step 1, before its first checkpoint"):
        again = prepared(tmp_path, steps=3, warmup_steps=1)
    assert train.train(again, 3) == 0
    lines = (job.workdir / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(m)["step"] for m in lines] == [1, 2, 3, 3]


def test_what_fails_in_the_background_is_told_at_the_next_line(tmp_path, monkeypatch, capsys):
    stub(monkeypatch, dict)
    job = prepared(tmp_path, steps=40, save_every=30, log_every=10)
    calls = []

    def check():
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("RESOURCE_EXHAUSTED: Failed to write: No space left on device [28]")

    monkeypatch.setattr(job.checkpoints, "check", check)
    assert train.train(job, 40) == 1
    assert "run cannot be written: No space left on device (disk " in capsys.readouterr().err
    lines = (job.workdir / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(m)["step"] for m in lines] == [10, 20]


@pytest.mark.parametrize(
    "found, validated, message",
    [
        ({"finite": False, "loss": 7.0}, 2.0, "non-finite loss or update at step 1 .loss 7.0"),
        ({}, float("nan"), "non-finite validation loss at step 2"),
        ({}, float("inf"), "non-finite validation loss at step 2"),
    ],
)
def test_nothing_that_is_not_finite_is_saved(
    tmp_path, monkeypatch, capsys, found, validated, message
):
    stub(monkeypatch, lambda: found, lambda: validated)
    job = prepared(tmp_path, steps=4, warmup_steps=1, save_every=2)
    assert train.train(job, 4) == 1
    assert re.search(message, capsys.readouterr().err)
    assert checkpoint.step_folders(job.workdir) == []


def test_the_command_stops_where_it_is_told_and_does_nothing_twice(tmp_path, monkeypatch, capsys):
    stub(monkeypatch, dict)

    def main(**settings):
        config = test_loop.configured(tmp_path, warmup_steps=1, schedule="constant", **settings)
        for name, value in (("CONFIG", config), ("WORKDIR", tmp_path / "run"), ("INIT_FROM", None)):
            monkeypatch.setattr(train, name, SimpleNamespace(value=value))
        status = train.main()
        return status, capsys.readouterr().out

    status, said = main(steps=6, stop_at=2)
    assert status == 0 and "step 2/2  valid_loss" in said and "continuing" not in said
    lines = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    # The stub's state never moves on: what was saved says so.
    monkeypatch.setattr(checkpoint.Checkpoints, "restore_newest", at_step(2))
    status, said = main(steps=6, stop_at=2)
    assert (status, said) == (
        0, f"{tmp_path}/run is at step 2, and 2 are asked for: nothing to do\n"
    )  # fmt: skip
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == lines
    status, said = main(steps=3, stop_at=5)
    assert status == 0 and "continuing after step 2\n" in said and "step 3/3  valid_loss" in said


@pytest.mark.parametrize("at, said", [(1, "SIGTERM: stopped after step 1 with a"), (2, "")])
def test_a_signal_at_the_last_step_stops_nothing(tmp_path, monkeypatch, capsys, at, said):
    calls = []

    def found():
        calls.append(1)
        if len(calls) == at:
            signal.raise_signal(signal.SIGTERM)
        return {}

    stub(monkeypatch, found)
    job = prepared(tmp_path, steps=2, warmup_steps=1)
    assert train.train(job, 2) == 0
    told = capsys.readouterr().out
    assert (said in told) and ("stopped" in told) == (at == 1)
    assert checkpoint.find_step(job.workdir, "latest") == at


def at_step(number):
    return lambda self, like, sharding: {**like, "step": number}


def test_only_reports_of_other_threads_are_left_out(monkeypatch):
    shown = []
    monkeypatch.setattr(sys, "__unraisablehook__", shown.append)
    command.unraisable("main")
    for setting in (None, "1"):
        monkeypatch.delenv(command.TRACEBACK, raising=False)
        if setting:
            monkeypatch.setenv(command.TRACEBACK, setting)
        other = threading.Thread(target=command.unraisable, args=(f"other {setting}",))
        other.start()
        other.join()
    assert shown == ["main", "other 1"]


def test_a_file_is_replaced_whole_or_stays_as_it_was(tmp_path):
    path = tmp_path / "config.json"
    durable.replace(path, b"one")
    with largest_file(10), pytest.raises(OSError, match="File too large"):
        durable.replace(path, b"two" * 100)
    assert path.read_bytes() == b"one" and list(tmp_path.iterdir()) == [path]
    durable.replace(path, b"three")
    assert path.read_bytes() == b"three" and list(tmp_path.iterdir()) == [path]


LINES = [b'{"step": 1, "loss": 2.0}', b'{"step": 2, "valid_loss": 3.0}', b'{"step": 3, "loss": 1}']


@pytest.mark.parametrize(
    "damage",
    [
        b'{"step": 2, "x": "\xff"}',
        b'{"step": "2"}',
        b'{"step": true}',
        b'{"step": 2.0}',
        b'{"loss": 2}',
        b'{"step": 1',
        b"[2]",
        b"2",
        b"\x00" * 40,
        b"[" * 100_000,
        b"",
    ],
)
def test_a_damaged_line_of_metrics_is_dropped_with_a_word(tmp_path, damage):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"\n".join([LINES[0], damage, *LINES[1:], b""]))
    with pytest.warns(UserWarning, match="metrics.jsonl: 1 damaged line was dropped"):
        metrics.keep_until(path, 2)
    assert path.read_bytes() == b"\n".join([*LINES[:2], b""])


def test_a_last_line_that_was_cut_short_is_dropped_without_a_word(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b"\n".join(LINES)[:-4])
    metrics.keep_until(path, 3)
    assert path.read_bytes() == b"\n".join([*LINES[:2], b""])
    path.write_bytes(b"\n".join(LINES))  # whole but for its end
    metrics.keep_until(path, 3)
    assert path.read_bytes() == b"\n".join([*LINES, b""])
    before = path.stat()
    metrics.keep_until(path, 3)  # nothing to do: nothing is written
    assert path.stat() == before
    metrics.keep_until(path, 1)
    assert path.read_bytes() == LINES[0] + b"\n"


def test_tensorboard_forgets_the_steps_that_a_resumed_run_does_again(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for begun, steps in ((0, (1, 2, 3)), (2, (3, 4))):
        log = metrics.MetricsLog(tmp_path, begun)
        for at in steps:
            log.write(at, {"loss": 10.0 * begun + at, "batch_hash": "ab"})
        log.close()
    board = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert board.Tags()["scalars"] == ["loss"]
    found = [(event.step, event.value) for event in board.Scalars("loss")]
    assert found == [(1, 1.0), (2, 2.0), (3, 23.0), (4, 24.0)]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(m["step"], m["loss"]) for m in lines] == found


def test_starts_within_one_second_keep_their_own_events(tmp_path):
    for at in range(3):
        log = metrics.MetricsLog(tmp_path, at)
        log.write(at + 1, {"loss": 1.0})
        log.close()
    assert len(list((tmp_path / "tensorboard").iterdir())) == 3


def test_what_is_written_can_be_followed(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(metrics.time, "monotonic", lambda: now[0])
    log = metrics.MetricsLog(tmp_path, 0)
    events = next((tmp_path / "tensorboard").iterdir())
    log.write(1, {"loss": 1.0})
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1, "loss": 1.0}
    assert events.stat().st_size == 0
    now[0] = metrics.BOARD_SECONDS + 1
    log.write(2, {"loss": 1.0})
    size = events.stat().st_size
    assert size > 0
    log.write(3, {"loss": 1.0})
    assert events.stat().st_size == size  # not at every line
    log.close()
