"""Standard streams that are closed, full or left by their reader: the work goes on and the status tells."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from configs import command, streams

ROOT = Path(__file__).parent.parent
STUDY = f"{sys.executable} study.py --config=configs/studies/smoke.py --workdir=w --print_commands"
WHERE = """
import json, os, sys
from configs import streams
streams.protect()
data = open(os.devnull)
print("lost"); print("lost", file=sys.stderr); sys.stdout.flush(); sys.stdin.read()
os.write(int(sys.argv[1]), json.dumps({
    "number": data.fileno(),
    "streams": [os.readlink(f"/proc/self/fd/{n}") for n in range(3)],
    "inherited": [os.get_inheritable(n) for n in range(3)],
}).encode())
"""


def shell(line: str, **more):
    return subprocess.run(
        ["sh", "-c", line], cwd=ROOT, capture_output=True, text=True, timeout=60, **more
    )


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_closed_streams_keep_their_numbers_from_data_files(closed):
    end, other = os.pipe()
    os.set_inheritable(other, True)
    words = " ".join(f"{n}>&-" for n in closed)
    line = f"exec '{sys.executable}' -c '{WHERE}' {other} {words}"
    done = shell(line, pass_fds=[other])
    os.close(other)
    with open(end) as file:
        told = json.loads(file.read() or "{}")
    assert done.returncode == 0 and told, done.stderr
    assert told["number"] > 2 and all(told["inherited"])
    for number in closed:
        assert told["streams"][number] == os.devnull
    assert "Error" not in done.stderr


def full(buffering=-1):
    return streams.Stream(open("/dev/full", "w", buffering))


def test_a_failed_write_is_noted_and_the_first_one_kept():
    stream = full()
    assert stream.write("a line\n") == 7 and stream.failure is None  # still in the buffer
    stream.flush()
    assert stream.failure.errno == errno.ENOSPC
    first = stream.failure
    stream.writelines(["x" * 100_000, "y" * 100_000])
    assert stream.failure is first
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())  # room again
    stream.flush()
    stream.close()


@pytest.mark.parametrize("path, status", [("/dev/full", 1), ("/dev/null", 0)])
def test_what_stands_in_the_buffer_is_not_yet_printed(monkeypatch, path, status):
    monkeypatch.setattr(sys, "stdout", streams.Stream(open(path, "w")))
    print("a result")
    assert streams.printed() == status
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.stdout.close()


class Later:
    """A stream that works from the second write on."""

    def __init__(self):
        self.lines = []

    def write(self, text):
        if not self.lines:
            self.lines.append("")
            raise OSError(errno.ENOSPC, "No space left on device")
        self.lines.append(text)


def test_later_lines_arrive_where_there_is_room_again():
    stream = streams.Stream(Later())
    print("one", "two", sep="\n", file=stream)
    assert "".join(stream.lines) == "\ntwo\n" and stream.failure.errno == errno.ENOSPC


def test_protected_streams_write_names_of_any_bytes(tmp_path, monkeypatch):
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, (tmp_path / name).open("w", encoding="ascii"))
    streams.protect()
    once = sys.stdout
    streams.protect()  # a second time changes nothing
    assert sys.stdout is once
    print("caf\u00e9 \udcff", flush=True)
    sys.stderr.flush()
    assert (tmp_path / "stdout").read_text() == "caf\\xe9 \\udcff\n"
    sys.stdout.close()
    sys.stderr.close()


def test_what_prints_its_result_fails_where_that_is_lost():
    assert shell(f"{STUDY} >/dev/full").returncode == 1
    done = shell(f"{STUDY} >/dev/full")
    assert done.stderr == "study.py: not all that was printed arrived (No space left on device)\n"
    done = shell(f"{{ {STUDY}; echo status $? >&2; }} | true")
    assert done.stderr == "status 141\n"
    done = shell(f"{STUDY} 2>&-")
    assert done.returncode == 0 and done.stdout.count("train.py") == 2 and done.stderr == ""


def test_a_training_goes_on_without_its_streams(tmp_path, monkeypatch):
    import test_loop

    import train
    from training import checkpoint

    job = test_loop.prepared(tmp_path, steps=3, warmup_steps=1)
    monkeypatch.setattr(sys, "argv", ["train.py"])
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, full(buffering=1))
    with pytest.raises(SystemExit) as ended:
        command.run(lambda: train.train(job, 3))
    out, err = sys.stdout, sys.stderr
    monkeypatch.undo()
    for stream in (out, err):
        assert stream.failure.errno == errno.ENOSPC
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        stream.close()
    assert ended.value.code == 0
    assert checkpoint.find_step(job.workdir, "latest") == 3


def test_an_interruption_before_the_work_is_one_word(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["train.py"])
    with pytest.raises(SystemExit) as ended:
        command.run(interrupted)
    assert ended.value.code == 130 and capsys.readouterr().err == "interrupted\n"


@pytest.mark.slow
@pytest.mark.parametrize("how", ["2>&-", "<&- >&- 2>&-", ">/dev/full"])
def test_whole_commands_end_well_without_their_streams(tmp_path, how):
    run = f"{sys.executable} train.py --config=configs/smoke.py --workdir={tmp_path}/run"
    run += f" --config.data.source=synthetic:copy --config.data.cache_dir={tmp_path}/cache"
    run += " --config.train.steps=5 --config.train.eval_windows=8"
    out = f"{sys.executable} eval_extrapolation.py --runs={tmp_path}/run --out={tmp_path}/out"
    for words in (run, f"{out} --lengths=32 --protocols=disjoint"):
        done = shell(f"{{ {words}; echo $? >{tmp_path}/status; }} {how}")
        assert (tmp_path / "status").read_text() == "0\n", done.stderr
        assert "Traceback" not in done.stderr
    assert (tmp_path / "run" / "checkpoints" / "5").is_dir()
    assert json.loads((tmp_path / "out" / "records.jsonl").read_text())["status"] == "ok"
