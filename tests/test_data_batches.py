"""Batches are a pure function of (seed, step); windows hold every token once."""

import collections

import numpy as np
import pytest

from data import Batches, TokenFile, batch_hash, disjoint_windows


def stream(documents, separator=9999):
    tokens = np.concatenate([np.append(document, separator) for document in documents])
    offsets = np.cumsum([0, *[len(document) + 1 for document in documents]]).astype(np.int64)
    names = [str(index) for index in range(len(documents))]
    return TokenFile(tokens.astype(np.uint16), offsets, names, separator)


def counting(n):
    """n tokens, each its own position in the stream."""
    return stream([np.arange(n - 1)], separator=n - 1)


def test_batches_are_pure():
    file = counting(1000)
    forward, backward = Batches(file, 8, 5, 3, False), Batches(file, 8, 5, 3, False)
    expected = [forward.batch(step) for step in range(60)]
    for step in reversed(range(60)):
        batch = backward.batch(step)
        assert batch["tokens"].dtype == np.int32 and batch["tokens"].shape == (5, 9)
        assert batch["weights"].dtype == np.float32 and (batch["weights"] == 1).all()
        np.testing.assert_array_equal(batch["tokens"], expected[step]["tokens"])
    other = Batches(file, 8, 5, 4, False).batch(0)["tokens"]
    assert batch_hash(other) != batch_hash(expected[0]["tokens"])


@pytest.mark.parametrize("n", [96, 97, 100, 103, 104, 105])
def test_every_window_once_an_epoch_in_a_new_order(n):
    """Tokens name their place, so a shifted last window or one seen twice shows (97: none left)."""
    length, batch_size = 8, 5
    batches = Batches(counting(n), length, batch_size, 0, False)
    count = (n - 1) // length
    assert batches.windows_per_epoch == count
    rows = np.concatenate([batches.batch(step)["tokens"] for step in range(3 * count)])
    epochs = rows[: 3 * count].reshape(3, count, length + 1)
    for epoch in epochs:
        targets = collections.Counter(epoch[:, 1:].ravel().tolist())
        assert targets == collections.Counter(range(1, count * length + 1))
        np.testing.assert_array_equal(epoch, epoch[:, :1] + np.arange(length + 1)[None, :])
        assert (epoch[:, 0] % length == 0).all()
    assert not np.array_equal(epochs[0], epochs[1])
    assert not np.array_equal(epochs[1], epochs[2])


def test_epoch_counts_rows():
    batches = Batches(counting(8 * 7 + 1), 8, 3, 0, False)
    assert batches.windows_per_epoch == 7
    assert [batches.epoch(step) for step in range(7)] == [0, 0, 0, 1, 1, 2, 2]
    assert {batches.batch(step)["tokens"].shape for step in range(9)} == {(3, 9)}


def test_shards_put_together_are_the_batch():
    batches = Batches(stream([np.arange(50), np.arange(30)]), 8, 6, 1, True)
    whole = batches.batch(4)
    parts = [batches.batch(4, 0, 2), batches.batch(4, 2, 6)]
    for name in whole:
        np.testing.assert_array_equal(np.concatenate([part[name] for part in parts]), whole[name])


def test_first_batch_after_resume_is_not_the_first_batch():
    batches = Batches(counting(2000), 8, 4, 0, False)
    assert len({batch_hash(batches.batch(step)["tokens"]) for step in range(50)}) == 50


def test_too_small_corpus_says_how_many_windows():
    with pytest.raises(ValueError, match="train.length=64 .* has 10, so 0 windows"):
        Batches(counting(10), 64, 1, 0, False)
    with pytest.raises(ValueError, match="train.batch_size=13 is more than the 12 windows"):
        Batches(counting(97), 8, 13, 0, False)
    assert Batches(counting(97), 8, 12, 0, False).windows_per_epoch == 12
    for length, batch_size in ((0, 1), (8, 0)):
        with pytest.raises(ValueError, match="should be 1 or more"):
            Batches(counting(97), length, batch_size, 0, False)
    with pytest.raises(ValueError, match="no rows"):
        Batches(counting(97), 8, 4, 0, False).batch(-1)


def test_isolated_documents():
    """Documents of 3, 0 and 4 tokens: [1 2 3 S] [S] [4 5 6 7 S]."""
    file = stream([np.array([1, 2, 3]), np.array([], int), np.array([4, 5, 6, 7])], separator=9)
    batch = Batches(file, 9, 1, 0, True).batch(0)
    assert batch["tokens"].tolist() == [[1, 2, 3, 9, 9, 4, 5, 6, 7, 9]]
    assert batch["segments"].tolist() == [[0, 0, 0, 0, 1, 2, 2, 2, 2]]
    assert batch["positions"].tolist() == [[0, 1, 2, 3, 0, 0, 1, 2, 3]]
    assert batch["weights"].tolist() == [[1, 1, 1, 0, 0, 1, 1, 1, 1]]
    assert batch["segments"].dtype == batch["positions"].dtype == np.int32


def test_isolation_of_windows_inside_documents():
    documents = [np.arange(100 * index, 100 * index + 20 + index) for index in range(8)]
    batches = Batches(stream(documents), 16, 4, 0, True)
    for step in range(20):
        batch = batches.batch(step)
        for row in range(4):
            document, position = 0, 0
            for t in range(16):
                token = batch["tokens"][row, t]
                assert batch["segments"][row, t] == document
                assert batch["positions"][row, t] == position
                assert batch["weights"][row, t] == (token != 9999)
                document, position = (
                    (document + 1, 0) if token == 9999 else (document, position + 1)
                )


def test_long_token_files_do_not_wrap():
    """A window past 2^31 tokens, over a stand-in that knows only where it is asked."""

    class Endless:
        def __len__(self):
            return 3 * 2**30 + 1

        def __getitem__(self, part):
            assert 0 <= part.start < len(self)
            return np.full(part.stop - part.start, part.start // 2**28)

    offsets = np.array([0, 3 * 2**30 + 1], np.int64)
    batches = Batches(TokenFile(Endless(), offsets, ["a"], 9999), 2**22, 1, 0, False)
    seen = {int(batches.batch(step)["tokens"][0, 0]) for step in range(0, 768, 16)}
    assert max(seen) >= 8


def test_batch_hash():
    tokens = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert batch_hash(tokens) == batch_hash(tokens.astype(np.int64)) == "7eadaafe1c36d469"
    assert batch_hash(tokens) != batch_hash(tokens.reshape(3, 2))
    assert batch_hash(tokens) != batch_hash(tokens[::-1])


@pytest.mark.parametrize("length", [1, 3, 4, 7, 8, 50])
def test_disjoint_windows_count_each_target_once(length):
    sizes = [0, 1, 2, 4, 5, 8, 9, 17]
    documents = [np.arange(100 * i, 100 * i + n, dtype=np.int32) for i, n in enumerate(sizes)]
    tokens, weights = disjoint_windows(documents, length)
    assert tokens.dtype == np.int32 and weights.dtype == np.float32
    assert tokens.shape == (sum(-(-max(0, n - 1) // length) for n in sizes), length + 1)
    counted = tokens[:, 1:][weights == 1]
    assert counted.tolist() == [token for document in documents for token in document[1:]]
    assert weights.sum() == sum(max(0, n - 1) for n in sizes)
    for row, weight in zip(tokens, weights, strict=True):
        n = int(weight.sum())
        assert weight.tolist() == [1.0] * n + [0.0] * (length - n)
        np.testing.assert_array_equal(row[: n + 1], row[0] + np.arange(n + 1))
        assert row[0] % 100 % length == 0
        assert (row[n + 1 :] == 0).all()


def test_disjoint_windows_of_nothing():
    tokens, weights = disjoint_windows([], 4)
    assert tokens.shape == (0, 5) and weights.shape == (0, 4)
    with pytest.raises(ValueError, match="length=0"):
        disjoint_windows([np.arange(9)], 0)


def test_the_order_stays_as_it_is():
    """A run goes on, and is compared with older ones, by the same batches."""
    batches = Batches(counting(97), 8, 4, seed=3, isolate_documents=False)
    windows = [(batches.batch(step)["tokens"][:, 0] // 8).tolist() for step in (0, 2, 3, 5)]
    assert windows == [[7, 4, 5, 8], [3, 6, 0, 1], [0, 2, 7, 8], [4, 10, 6, 1]]
