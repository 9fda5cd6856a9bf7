"""Text to token files: separators, splits, cache keys, broken and concurrent files."""

import dataclasses
import json
import multiprocessing
import shutil

import numpy as np
import pytest

from data import DataConfig, prepare
from data.split import set_aside
from data.tokenizer import train_bpe

BASE = {
    "source": "synthetic:copy",
    "valid_source": "",
    "test_source": "",
    "tokenizer": "byte",
    "cache_dir": "cache",
    "isolate_documents": False,
    "text_column": "text",
    "split": "train",
    "streaming": False,
    "max_documents": 0,
}


@pytest.fixture
def config(tmp_path):
    def make(**changes):
        return DataConfig(**(BASE | {"cache_dir": str(tmp_path / "cache")} | changes))

    return make


def folder(tmp_path, **texts):
    root = tmp_path / "texts"
    root.mkdir(exist_ok=True)
    for name, text in texts.items():
        (root / f"{name}.txt").write_bytes(text)
    return f"files:{root}"


def text_of(corpus, file):
    return [corpus.tokenizer.decode(document) for document in file.documents()]


def test_separators_exactly_once_around_empty_documents(config, tmp_path):
    texts = {"a": b"12345", "b": b"", "c": b"1234567"}
    other, another = tmp_path / "other.txt", tmp_path / "another.txt"
    other.write_bytes(b"other")
    another.write_bytes(b"another")
    corpus = prepare(
        config(
            source=folder(tmp_path, **texts),
            valid_source=f"files:{other}",
            test_source=f"files:{another}",
        )
    )
    train = corpus.train
    assert train.tokens.tolist() == [*b"12345", 256, 256, *b"1234567", 256]
    assert train.num_tokens == sum(map(len, texts.values())) + 3
    assert train.offsets.tolist() == [0, 6, 7, 15] and train.offsets.dtype == np.int64
    assert train.names == ["a.txt", "b.txt", "c.txt"]
    assert [len(document) for document in train.documents()] == [5, 0, 7]
    assert text_of(corpus, train) == list(texts.values())
    assert text_of(corpus, corpus.valid) == [b"other"]
    assert text_of(corpus, corpus.test) == [b"another"]


@pytest.mark.parametrize("tokenizer", ["byte", "bpe:300"])
def test_no_text_vanishes(config, tmp_path, tokenizer):
    """Bad UTF-8, CRLF and one long line, exactly, over the three splits together."""
    rough = b"ok\xff\x92ok2\n" * 50 + b"".join(b"a line, %d\r\n" % n for n in range(400))
    texts = {f"d{index}": rough + b"%d" % index for index in range(6)} | {"line": b"x y" * 3000}
    corpus = prepare(config(source=folder(tmp_path, **texts), tokenizer=tokenizer))
    found = {}
    for file in (corpus.train, corpus.valid, corpus.test):
        found |= dict(zip(file.names, text_of(corpus, file), strict=True))
        assert file.tokens.max() < corpus.tokenizer.vocab_size
        assert (file.tokens == corpus.tokenizer.separator).sum() == len(file.names)
        assert isinstance(file.tokens, np.memmap) and file.tokens.dtype == np.uint16
    assert found == {f"{name}.txt": text for name, text in texts.items()}


def test_whole_documents_are_set_aside(config):
    corpus = prepare(config())
    names = [corpus.train.names, corpus.valid.names, corpus.test.names]
    assert sorted(sum(names, [])) == [f"copy-{index:03d}" for index in range(40)]
    assert len(names[0]) == 36
    # by a hash of number and name, the same for ever: runs are compared on these
    assert names[1:] == [["copy-022", "copy-034"], ["copy-017", "copy-019"]]
    hashes = corpus.meta["text_sha256"]
    assert hashes["train"].startswith("9b7314abc7fa069b")
    assert corpus.meta["splits"]["valid"]["names"] == corpus.valid.names
    assert corpus.meta["splits"]["test"]["names"] == corpus.test.names
    other = prepare(config(tokenizer="bpe:300", isolate_documents=True))
    assert [other.train.names, other.valid.names, other.test.names] == names


def test_the_shortest_is_set_aside_where_none_fits():
    sizes = [90, 60, 50, 70, 80, 0]
    ends = np.cumsum(sizes).tolist()
    pieces = [(str(i), end - n, end) for i, (end, n) in enumerate(zip(ends, sizes, strict=True))]
    shares, _ = set_aside(pieces, ("valid", "test"), {}, np.zeros(ends[-1], np.uint8))
    assert [name for name, _, _ in shares["valid"]] == ["2"]
    assert [name for name, _, _ in shares["test"]] == ["1"]


def test_documents_are_set_aside_while_they_fit():
    """5 of 100 bytes each: documents of 2 and 3 fill a share to the byte, and 6 never fits."""
    sizes = [6, 2, 3, 6, 2, 3, 6, 72]
    ends = np.cumsum(sizes).tolist()
    pieces = [(str(i), end - n, end) for i, (end, n) in enumerate(zip(ends, sizes, strict=True))]
    shares, _ = set_aside(pieces, ("valid", "test"), {}, np.zeros(ends[-1], np.uint8))
    for part in ("valid", "test"):
        assert 2 <= sum(stop - start for _, start, stop in shares[part]) <= 5
    with pytest.raises(ValueError, match="lacks the documents set aside by name: other"):
        set_aside(pieces, ("valid",), {"valid": ("1", "other")}, np.zeros(ends[-1], np.uint8))


@pytest.mark.parametrize(
    "sizes", [(1000, 10, 10), (10, 1000, 10), (5, 5, 5), (1, 1, 1, 0), (9,) * 7]
)
@pytest.mark.parametrize("parts", [("valid", "test"), ("test",)])
def test_every_split_gets_text(sizes, parts):
    ends = np.cumsum(sizes).tolist()
    pieces = [(str(i), end - n, end) for i, (end, n) in enumerate(zip(ends, sizes, strict=True))]
    shares, _ = set_aside(pieces, parts, {}, np.zeros(ends[-1], np.uint8))
    assert sorted(sum(shares.values(), [])) == pieces
    for share in shares.values():
        assert sum(stop - start for _, start, stop in share) > 0
    assert max(stop - start for _, start, stop in shares["train"]) == max(sizes)


def test_one_document_is_cut_at_line_ends(config, tmp_path):
    text = b"".join(b"line number %d\n" % index for index in range(1000))
    corpus = prepare(config(source=folder(tmp_path, a=text, b=b"short")))
    parts = [text_of(corpus, file) for file in (corpus.train, corpus.valid, corpus.test)]
    (train, short), (valid,), (test,) = parts
    assert train + valid + test == text and short == b"short"
    assert train.endswith(b"\n") and valid.endswith(b"\n")
    for part in (valid, test):
        assert abs(len(part) / len(text) - 0.05) < 0.01
    assert corpus.valid.names == [f"a.txt[{len(train)}:{len(train + valid)}]"]
    assert "too few documents" in corpus.meta["split_rule"]


def test_cut_without_lines_keeps_characters_whole(config, tmp_path):
    text = "日本".encode() * 505  # a twentieth of it is no whole number of characters
    corpus = prepare(config(source=folder(tmp_path, a=text)))
    for file in (corpus.train, corpus.valid, corpus.test):
        text_of(corpus, file)[0].decode("utf-8")


def test_text_too_small_or_empty(config, tmp_path):
    with pytest.raises(
        ValueError, match="too small to set some of it aside: 10 bytes.*valid_source"
    ):
        prepare(config(source=folder(tmp_path, a=b"ten bytes!")))
    with pytest.raises(ValueError, match="there is no text in its 1 documents"):
        prepare(config(source=folder(tmp_path, a=b"")))
    assert not list((tmp_path / "cache").iterdir())


def test_given_sources_are_used_and_the_rest_trains(config):
    corpus = prepare(config(valid_source="synthetic:random"))
    assert corpus.valid.names[0] == "random-000" and len(corpus.valid.names) == 40
    assert len(corpus.train.names) == 38 and len(corpus.test.names) == 2
    assert "copy" in corpus.source and "valid: synthetic task random" in corpus.source


def test_training_text_is_never_validation_text(config, tmp_path):
    source = folder(tmp_path, a=b"a" * 99, b=b"b" * 99)
    with pytest.raises(ValueError, match="data.valid_source=.* is the training source itself"):
        config(source=source, valid_source=source)
    with pytest.raises(ValueError, match="data.test_source: .*a.txt is also in data.source"):
        prepare(config(source=source, test_source=f"{source}/a.txt"))
    (tmp_path / "more").mkdir()
    (tmp_path / "more/c.txt").write_bytes(b"c" * 99)
    more = {"valid_source": f"files:{tmp_path}/more", "test_source": f"files:{tmp_path}/more/c.txt"}
    with pytest.raises(ValueError, match="data.test_source: .*c.txt is also in data.valid_source"):
        prepare(config(source=source, **more))
    (tmp_path / "link.txt").symlink_to(tmp_path / "texts/a.txt")
    with pytest.raises(ValueError, match="data.valid_source: .*a.txt is also in data.source"):
        prepare(config(source=source, valid_source=f"files:{tmp_path}/link.txt"))


def test_made_once_and_again_after_any_change(config, tmp_path):
    source = folder(tmp_path, **{name: name.encode() * 200 for name in "abcdef"})
    first = prepare(config(source=source))
    stamp = (first.directory / "meta.json").stat().st_mtime_ns
    again = prepare(config(source=source, isolate_documents=True))
    assert again.directory == first.directory
    assert (again.directory / "meta.json").stat().st_mtime_ns == stamp
    directories = {first.directory}
    for changes in (
        {"tokenizer": "bpe:258"},
        {"max_documents": 4},
        {"valid_source": "synthetic:copy"},
        {"source": "synthetic:random"},
    ):
        directories.add(prepare(config(**{"source": source} | changes)).directory)
    folder(tmp_path, a=b"b" * 200)  # the same size
    directories.add(prepare(config(source=source)).directory)
    assert len(directories) == 6


def test_meta_says_what_it_is(config):
    corpus = prepare(config())
    meta = json.loads((corpus.directory / "meta.json").read_text())
    assert len(meta.pop("sha256")) == 64 and meta == corpus.meta
    assert meta["tokenizer"] == corpus.tokenizer.identity()
    assert meta["splits"]["train"]["dtype"] == "uint16"
    assert meta["splits"]["train"]["tokens"] == corpus.train.num_tokens
    assert meta["splits"]["train"]["bytes"] == corpus.train.num_tokens - 36  # without separators
    assert len(meta["text_sha256"]["train"]) == 64 and "copy" in meta["source"]


@pytest.mark.parametrize("damage", ["tokens", "offsets", "names", "meta", "meta_text", "empty"])
def test_a_broken_token_file_is_made_again(config, damage):
    first = prepare(config(tokenizer="bpe:280"))
    expected = np.array(first.train.tokens)
    directory = first.directory
    match damage:
        case "tokens":
            with open(directory / "train.tokens", "r+b") as file:
                file.truncate(1000)
        case "offsets":
            (directory / "valid.offsets").unlink()
        case "names":
            (directory / "test.names.json").write_text("[]")
        case "meta":
            (directory / "meta.json").unlink()
        case "meta_text":
            (directory / "meta.json").write_text('{"splits": ')
        case "empty":
            shutil.rmtree(directory)
            directory.mkdir()
    again = prepare(config(tokenizer="bpe:280"))
    np.testing.assert_array_equal(again.train.tokens, expected)
    assert [path.name for path in directory.parent.iterdir()] == [directory.name]
    assert not (directory / "broken").exists()


def test_a_changed_tokenizer_file_is_not_used(config):
    first = prepare(config(tokenizer="bpe:280"))
    path = first.directory / "tokenizer.json"
    path.write_text(path.read_text().replace(" ", "  ", 1))
    assert prepare(config(tokenizer="bpe:280")).tokenizer.identity() == first.tokenizer.identity()


def test_bpe_is_trained_on_the_training_documents_alone(config, tmp_path):
    texts = {f"d{i}": b"".join(b"%d " % (i * j * j) for j in range(300)) for i in range(9)}
    corpus = prepare(config(source=folder(tmp_path, **texts), tokenizer="bpe:280"))
    held_out = text_of(corpus, corpus.valid) + text_of(corpus, corpus.test)
    assert len(held_out) == 2
    own = train_bpe("bpe:280", text_of(corpus, corpus.train))
    assert corpus.tokenizer.identity() == own.identity()
    assert train_bpe("bpe:280", texts.values()).sha256 != own.sha256
    size = sum(map(len, text_of(corpus, corpus.train)))
    assert corpus.meta["splits"]["train"]["bytes"] == size > corpus.train.num_tokens


def _prepare_and_sum(config):
    return int(np.sum(prepare(config).train.tokens, dtype=np.int64))


def test_processes_prepare_the_same_text_at_once(config, tmp_path):
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        sums = pool.map(_prepare_and_sum, [config()] * 8, chunksize=1)
    assert set(sums) == {_prepare_and_sum(config())}
    assert len(list((tmp_path / "cache").iterdir())) == 1


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("source", "", "data.source=.* is no source; give shakespeare"),
        ("source", "shakespear", 'data.source="shakespear" is no source'),
        ("source", "files:", "is no source"),
        ("source", "synthetic:adding", 'unknown task "adding"; give periodic, random, copy'),
        ("valid_source", "wiki", 'data.valid_source="wiki"'),
        ("tokenizer", "bpe", "data.tokenizer='bpe' should be"),
        ("tokenizer", "bpe:100", "257 or more"),
        ("cache_dir", "", "data.cache_dir"),
        ("cache_dir", "a\0b", "data.cache_dir='.*' can't be the name of a folder"),
        ("cache_dir", "a\ud800", "data.cache_dir='.*' can't be the name of a folder"),
        ("text_column", None, "data.text_column"),
        ("isolate_documents", 1, "data.isolate_documents=1"),
        ("max_documents", -1, "data.max_documents=-1"),
        ("max_documents", 1.5, "data.max_documents=1.5"),
        ("streaming", True, "data.streaming=True needs an hf: source"),
    ],
)
def test_config_errors_name_the_field(config, field, value, message):
    with pytest.raises(ValueError, match=message):
        config(**{field: value})


def test_two_sources_that_are_one(config, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match='data.test_source="hf:a" is the validation text'):
        config(valid_source="hf:a", test_source="hf:a")
    monkeypatch.chdir(tmp_path)
    given = config(source="files:a.txt", valid_source="hf:./set", cache_dir="cache")
    assert given.source == f"files:{tmp_path}/a.txt" and given.cache_dir == f"{tmp_path}/cache"
    assert given.valid_source == f"hf:{tmp_path}/set"


def test_the_hash_of_a_text_sees_where_its_documents_end(config, tmp_path):
    found = set()
    for index, texts in enumerate([("ab", "c", "def"), ("a", "bc", "def")]):
        root = tmp_path / str(index)
        root.mkdir()
        for number, text in enumerate(texts):
            (root / f"{number}.txt").write_text(text)
        found.add(prepare(config(source=f"files:{root}")).meta["text_sha256"]["train"])
    assert len(found) == 2


def test_config_is_frozen_and_without_defaults(config):
    with pytest.raises(dataclasses.FrozenInstanceError):
        config().source = "jax_source"
    with pytest.raises(TypeError):
        DataConfig("shakespeare")
    with pytest.raises(ValueError, match="does not apply to data.source='shakespeare'"):
        config(source="shakespeare", max_documents=3)
