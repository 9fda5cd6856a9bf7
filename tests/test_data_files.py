"""The file that is named is the file that is read; no text is left out, and no other bytes are read as text."""

import gzip
import io
import lzma
import os
import pickle
import socket
import sqlite3
import tarfile
import zipfile

import numpy as np
import pytest

from data import DataConfig, find, prepare, read_text_documents
from data.find import find_files
from tests.test_data_corpus import BASE, text_of
from tests.test_data_sources import write_jsonl, write_parquet


@pytest.fixture
def config(tmp_path):
    def make(**changes):
        return DataConfig(**(BASE | {"cache_dir": str(tmp_path / "cache")} | changes))

    return make


def names(path):
    return [name for name, _ in read_text_documents(str(path), "text")]


def everything(corpus):
    files = (corpus.train, corpus.valid, corpus.test)
    return b"".join(text for file in files for text in text_of(corpus, file))


# --- exactly the file that was found ---


@pytest.mark.parametrize("place", ["br[1]", "a::b", "star*", "q?", "plain"])
@pytest.mark.parametrize("kind", ["parquet", "jsonl", "txt"])
def test_a_path_is_no_pattern(config, tmp_path, place, kind):
    """Beside each folder stands one that its name as a pattern would find."""
    for folder, word in ((place, "right"), ("br1", "wrong"), ("start", "wrong"), ("qq", "wrong")):
        (tmp_path / folder).mkdir()
        path = tmp_path / folder / f"x.{kind}"
        texts = [f"{word} {i} " for i in range(60)]
        if kind == "parquet":
            write_parquet(path, {"text": texts})
        elif kind == "jsonl":
            write_jsonl(path, [{"text": text} for text in texts])
        else:
            path.write_text("".join(texts))
    for pattern in (place, f"{place}/x.{kind}", f"{place}/*.{kind}", f"{place}/**"):
        found = read_text_documents(str(tmp_path / pattern), "text")
        assert b"".join(text for _, text in found) == b"".join(b"right %d " % i for i in range(60))
    text = everything(prepare(config(source=f"files:{tmp_path}/{place}")))
    assert text.count(b"right") == 60 and b"wrong" not in text


def test_a_file_name_is_no_pattern(tmp_path):
    for name in ("f[1].txt", "f1.txt", "*.txt"):
        (tmp_path / name).write_text(name)
    for name in ("f[1].txt", "f1.txt", "*.txt"):
        assert read_text_documents(f"{tmp_path}/{name}", "text") == [(name, name.encode())]
    assert names(f"{tmp_path}/f*.txt") == ["f1.txt", "f[1].txt"]


@pytest.mark.parametrize("name", ["br[1]/train.parquet", "a::b/train.parquet", "train[1].parquet"])
def test_a_hub_folder_that_would_be_read_as_a_pattern_is_refused(config, tmp_path, name):
    path = tmp_path / "set" / name
    path.parent.mkdir(parents=True)
    write_parquet(path, {"text": ["one"] * 9})
    with pytest.raises(ValueError, match=r'data.source="hf:.*takes the (\[|::) in .*parquet"'):
        prepare(config(source=f"hf:{tmp_path}/set"))


def test_a_hub_folder_with_a_linked_folder_is_refused(config, tmp_path):
    (tmp_path / "set").mkdir()
    (tmp_path / "other").mkdir()
    for path in ("set/a.parquet", "other/b.parquet"):
        write_parquet(tmp_path / path, {"text": ["one"] * 9})
    (tmp_path / "set/more").symlink_to(tmp_path / "other")
    with pytest.raises(ValueError, match='leaves out the folder ".*set/more", which is a link'):
        prepare(config(source=f"hf:{tmp_path}/set"))


def test_globs_mean_what_they_do_elsewhere(tmp_path):
    for path in ("a/x.txt", "a/b/y.txt", "a/b/.z.txt", "a/.h/w.txt", "v.txt", "a/b/c/Q.TXT"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("text")
    expected = {
        "**": ["a/b/c/Q.TXT", "a/b/y.txt", "a/x.txt", "v.txt"],
        "**/*.txt": ["a/b/y.txt", "a/x.txt", "v.txt"],
        "*/*.txt": ["x.txt"],
        "*": ["v.txt"],
        "a/**/y.txt": ["y.txt"],
        "a/[!x]*/*": ["y.txt"],
        "a/.*/*": ["w.txt"],
        "a/b/.*": [".z.txt"],
        "a/?/*.txt": ["y.txt"],
        "a/../v.txt": ["v.txt"],
    }
    for pattern, found in expected.items():
        assert [name for name, _ in find_files(f"{tmp_path}/{pattern}", "text")] == found, pattern


def test_relative_patterns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("text")
    assert names("*.txt") == names("a.txt") == names(".") == ["a.txt"]


# --- nothing left out ---


def test_links_are_followed_and_each_folder_read_once(tmp_path):
    root = tmp_path / "root"
    for path in ("root/z/x.txt", "far/deep/y.txt", "far/one.txt"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    (root / "a").symlink_to(root / "z")  # the same folder under a name that sorts before it
    (root / "z/up").symlink_to(root)  # endless
    (root / "far").symlink_to(tmp_path / "far")
    (root / "one.txt").symlink_to(tmp_path / "far/one.txt")
    found = {"far/deep/y.txt", "far/one.txt", "one.txt", "z/x.txt"}
    assert names(root) == names(f"{root}/**/*.txt") == sorted(found)


@pytest.mark.parametrize("pattern", ["", "/**/*.txt"])
def test_a_link_to_nothing_is_named(tmp_path, pattern):
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "more").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ValueError, match='text=.*"/.*/more" cannot be read: No such file'):
        names(f"{tmp_path}{pattern}")
    (tmp_path / "more").unlink()
    (tmp_path / "more").symlink_to("more")
    with pytest.raises(ValueError, match='text=.*/more" cannot be read: Too many levels'):
        names(f"{tmp_path}{pattern}")
    with pytest.raises(ValueError, match='text=.*/more" cannot be read'):
        names(tmp_path / "more")


@pytest.mark.parametrize("pattern", ["", "/**/*.txt"])
def test_a_folder_that_cannot_be_listed_is_named(tmp_path, monkeypatch, pattern):
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "secret").mkdir()
    scandir = os.scandir

    def refusing(path):
        if str(path).endswith("secret"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(find.os, "scandir", refusing)
    with pytest.raises(ValueError, match='text=.*"/.*/secret" cannot be read: Permission denied'):
        names(f"{tmp_path}{pattern}")


@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_a_file_that_cannot_be_read_is_named(config, tmp_path, monkeypatch, name):
    """Its disk may be broken: such an error has no name by itself."""
    path = tmp_path / name
    write_jsonl(path, [{"text": "one"}])

    class Broken(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, buffer):
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("builtins.open", lambda *_: io.BufferedReader(Broken()))
    message = f'"{path}" cannot be read: Input/output error'
    with pytest.raises(ValueError, match=message):
        names(path)
    with pytest.raises(ValueError, match=message):
        find.hash_files([(name, path)])


def test_what_is_no_file_and_what_is_packed_is_named(tmp_path, monkeypatch):
    (tmp_path / "a.txt").write_text("text")
    monkeypatch.chdir(tmp_path)
    with socket.socket(socket.AF_UNIX) as place:
        place.bind("b.txt")
    for pattern in (tmp_path, tmp_path / "b.txt", f"{tmp_path}/*.txt"):
        with pytest.raises(ValueError, match='text=.*b.txt" is no regular file'):
            names(pattern)
    (tmp_path / "b.txt").unlink()
    (tmp_path / "c.jsonl.zst").write_bytes(b"")
    with pytest.raises(ValueError, match='c.jsonl.zst" is not text'):
        names(tmp_path)
    with pytest.raises(ValueError, match="text=.*null byte"):
        names(f"{tmp_path}/a\0")


def test_a_shard_without_rows_has_no_documents(config, tmp_path):
    root = tmp_path / "shards"
    root.mkdir()
    for name, texts in (("a", []), ("b", [f"row {i}" for i in range(40)])):
        write_parquet(root / f"{name}.parquet", {"text": np.array(texts, str)})
    assert names(root) == [f"b.parquet:{i}" for i in range(1, 41)]
    assert everything(prepare(config(source=f"files:{root}"))).count(b"row") == 40


def test_a_corrupt_shard_is_named(tmp_path):
    path = tmp_path / "s.parquet"
    write_parquet(path, {"text": [f"some text {i}" for i in range(400)]})
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 255
    for content in (whole[:-50], whole[len(whole) // 2 :], b"", b"PAR1", bytes(flipped)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match='s.parquet" cannot be read as parquet: .') as error:
            names(path)
        assert "\n" not in str(error.value).strip()


def test_parquet_is_read_to_its_end(tmp_path):
    texts = [f"row {i}" for i in range(2500)]
    write_parquet(tmp_path / "r.parquet", {"text": texts})
    found = read_text_documents(f"{tmp_path}/r.parquet", "text")
    assert found == [(f"r.parquet:{i + 1}", text.encode()) for i, text in enumerate(texts)]


def test_parquet_holds_bytes_in_many_ways(tmp_path):
    import pyarrow as pa

    texts = [b"a", b"\xff\xfe", None, "é".encode(), b"a\x00b"]
    raw = pa.array(texts, pa.binary())
    plain = raw.view(pa.string())
    for column in (raw, plain, plain.cast(pa.large_binary()), plain.dictionary_encode()):
        write_parquet(tmp_path / "r.parquet", {"a.b": column, "n": [1] * 5, "a": [{"b": "no"}] * 5})
        found = read_text_documents(f"{tmp_path}/r.parquet", "a.b")
        assert [text for _, text in found] == [text or b"" for text in texts]
    for column, message in (
        ("n", "holds int, not text, in .*r.parquet"),
        ("body", '"body" is not in .*r.parquet; its columns: a.b, n, a'),
        ("a", "holds dict"),
    ):
        with pytest.raises(ValueError, match=f"data.text_column=.*{message}"):
            read_text_documents(f"{tmp_path}/r.parquet", column)


@pytest.mark.parametrize("kind", ["txt", "parquet", "new"])
def test_a_file_that_changes_while_it_is_read(config, tmp_path, monkeypatch, kind):
    """Tokens are kept under the hash of what they were made from."""
    root = tmp_path / "texts"
    root.mkdir()
    for index in range(9):
        (root / f"{index}.txt").write_text(f"text {index}" * 9)
    write_parquet(root / "p.parquet", {"text": ["row"] * 9})
    from data import sources

    read = sources.file_documents

    def changing(files, column):
        yield from read(files, column)
        if kind == "txt":
            (root / "3.txt").write_text("other")
        elif kind == "parquet":
            write_parquet(root / "p.parquet", {"text": ["now"] * 9})
        else:
            (root / "n.txt").write_text("new")

    monkeypatch.setattr(sources, "file_documents", changing)
    name = {"txt": "3.txt", "parquet": "p.parquet", "new": "n.txt"}[kind]
    with pytest.raises(
        ValueError, match=f"data.source=.* changed while it was read: {name}; start"
    ):
        prepare(config(source=f"files:{root}"))
    assert list((tmp_path / "cache").iterdir()) == []
    monkeypatch.setattr(sources, "file_documents", read)
    prepare(config(source=f"files:{root}"))


# --- bytes that are no text ---


def tar_of(text):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        member = tarfile.TarInfo("a.txt")
        member.size = len(text)
        tar.addfile(member, io.BytesIO(text))
    return file.getvalue()


def zip_of(text):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", text)
    return file.getvalue()


def npy_of(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def arrow_of(texts):
    import pyarrow as pa

    file = io.BytesIO()
    table = pa.table({"text": texts})
    with pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return file.getvalue()


def database(path):
    with sqlite3.connect(path) as connection:
        connection.execute("create table t (x)")
    connection.close()
    return path.read_bytes()


TEXT = b"some text, " * 40
BINARY = {
    "gzip data": lambda _: gzip.compress(TEXT),
    "xz data": lambda _: lzma.compress(TEXT),
    "bzip2 data": lambda _: __import__("bz2").compress(TEXT),
    "zstd data": lambda _: b"\x28\xb5\x2f\xfd" + TEXT,
    "lz4 data": lambda _: b"\x04\x22\x4d\x18" + TEXT,
    "a zip archive": lambda _: zip_of(TEXT),
    "a tar archive": lambda _: tar_of(TEXT),
    "an Arrow file": lambda _: arrow_of(["text"]),
    "a NumPy array": lambda _: npy_of(np.arange(9)),
    "HDF5": lambda _: b"\x89HDF\r\n\x1a\n" + TEXT,
    "a Python pickle": lambda _: pickle.dumps([TEXT]),
    "an SQLite database": lambda tmp_path: database(tmp_path / "database"),
    "PDF": lambda _: b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n" + TEXT,
    "a program": lambda _: b"\x7fELF\x02\x01" + TEXT,
    "a PNG image": lambda _: b"\x89PNG\r\n\x1a\n" + TEXT,
    "a JPEG image": lambda _: b"\xff\xd8\xff\xe0" + TEXT,
    "a GIF image": lambda _: b"GIF89a" + TEXT,
    "a WebP image": lambda _: b"RIFF\x24\x08\x01\x01WEBPVP8 " + TEXT,
    "UTF-16 text": lambda _: "日本".encode("utf-16"),
}


@pytest.mark.parametrize("what", BINARY)
def test_what_is_no_text_is_refused_by_name(tmp_path, what):
    content = BINARY[what](tmp_path)
    for name in ("x.txt", "x", "x.bin", "x.jsonl"):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=f'/{name}" is {what}, not text'):
            names(tmp_path / name)


def test_parquet_of_another_name_and_zeros(config, tmp_path):
    write_parquet(tmp_path / "p.txt", {"text": ["row"]})
    with pytest.raises(ValueError, match='p.txt" is parquet without the ending'):
        names(tmp_path / "p.txt")
    root = tmp_path / "texts"
    root.mkdir()
    (root / "a.txt").write_bytes(b"12345\x00789")
    with pytest.raises(ValueError, match='a.txt" is not text: its byte 6 is 0$'):
        prepare(config(source=f"files:{root}"))
    (root / "a.txt").write_bytes(b"\x00a")
    with pytest.raises(ValueError, match="its byte 1 is 0$"):
        prepare(config(source=f"files:{root}"))
    (root / "a.txt").write_bytes("plain words".encode("utf-16-le"))
    with pytest.raises(ValueError, match=r"byte 2 is 0 \(UTF-16 text\? .*iconv -f UTF-16"):
        prepare(config(source=f"files:{root}"))


def test_rough_text_is_text(tmp_path):
    """Any bytes but 0: wrong UTF-8, other encodings, control codes, words that formats begin with."""
    for text in (
        bytes(range(1, 256)),
        "naïve".encode("latin-1"),
        "\ufeffmark".encode(),
        "текст".encode("koi8-r"),
        b"\x1b[1mbold",
        b"PK is a name, BZh too, PAR1, ARROW1, Rar! RIFF, SQLite format 3, ustar",
        b"x" * 257 + b"usta",
        b"",
    ):
        (tmp_path / "a.txt").write_bytes(text)
        assert read_text_documents(f"{tmp_path}/a.txt", "text") == [("a.txt", text)]


def test_ndjson_is_jsonl(tmp_path):
    write_jsonl(tmp_path / "r.ndjson", [{"text": "one"}, {"text": "two\x00"}])
    (tmp_path / "R.NDJSON").write_text('{"text": "three"}\n')
    (tmp_path / "s.jsonl").write_text('\n{"text": "four"}\n \n{"text": "five"}')
    assert names(tmp_path / "s.jsonl") == ["s.jsonl:2", "s.jsonl:4"]
    (tmp_path / "s.jsonl").unlink()
    expected = [("R.NDJSON:1", b"three"), ("r.ndjson:1", b"one"), ("r.ndjson:2", b"two\x00")]
    assert read_text_documents(str(tmp_path), "text") == expected
    for line in ("[" * 100_000, "1" * 5000):
        (tmp_path / "r.ndjson").write_text(line)
        with pytest.raises(ValueError, match="r.ndjson:1: "):
            names(tmp_path / "r.ndjson")
