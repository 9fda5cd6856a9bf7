"""The tasks' examples: answers by an independent reading of the text, exact lengths, own streams."""

import itertools
import re

import numpy as np
import pytest

import data
from configs import probe
from data import tasks
from data.synthetic import describe, parse_task, synthetic_documents
from data.tasks import TASKS, answer_weights, questions, training_document
from training.config import RunConfig


def solve(name, prompt):
    """The answer of a prompt, read from its text alone."""
    text = prompt.decode()
    if name == "passkey":
        (found,) = re.findall(r"\[key=([A-Z]{5})\]", text)
        assert text.endswith("[key=") and text.count("[key=") == 2
        return found.encode()
    if name == "recall":
        pairs, _, asked = text.lstrip(".").partition("?")
        pairs = re.findall(r"(.)([0-9])", pairs)
        assert len(dict(pairs)) == len(pairs)
        earlier = re.findall(r"(.)([0-9])", asked[:-1])
        assert set(earlier) < set(pairs) and asked[-1] not in dict(earlier)
        assert 2 * len(earlier) + 1 == len(asked)
        return dict(pairs)[asked[-1]].encode()
    if name == "addition":
        a, b = re.fullmatch(r"\.{0,2}([0-9]+)\+([0-9]+)=", text).groups()
        assert len(a) == len(b)
        return f"{int(a[::-1]) + int(b[::-1]):0{len(a) + 1}d}"[::-1].encode()
    letters, mark = re.fullmatch(r"\.?([a-z]+)([|<>])", text).groups()
    assert mark == {"copy": "|", "reverse": "<", "sort": ">"}[name]
    return {"|": letters, "<": letters[::-1], ">": "".join(sorted(letters))}[mark].encode()


@pytest.mark.parametrize("name", TASKS)
def test_answers_are_right_and_lengths_exact(name):
    shortest, longest = TASKS[name].shortest, min(TASKS[name].longest, 700)
    for length in {*range(shortest, shortest + 12), 31, 64, 255, longest}:
        if length >= shortest and length <= longest:
            for example, _ in questions(name, length, 6, 3):
                assert len(example.prompt) + len(example.answer) == length
                assert example.answer == solve(name, example.prompt)


@pytest.mark.parametrize("name", TASKS)
def test_one_size_is_one_layout(name):
    """The probe reads every answer of a length from the same columns."""
    for length in (TASKS[name].shortest, 40, 41, 42):
        assert len({len(example.prompt) for example, _ in questions(name, length, 20, 5)}) == 1


def test_the_bounds_of_a_task_are_where_its_frame_ends():
    def make(name, length):
        return TASKS[name].make(tasks.Stream(key=[1, 2]), length, 0.5)

    assert solve("passkey", make("passkey", 22).prompt) and TASKS["passkey"].shortest == 22
    make("recall", TASKS["recall"].longest)
    with pytest.raises(IndexError):
        make("recall", TASKS["recall"].longest + 1)
    assert solve("recall", make("recall", 7).prompt)
    assert len(make("copy", 3).answer) == 1 and len(make("addition", 6).answer) == 2


@pytest.mark.parametrize("name", TASKS)
def test_depth_is_as_asked(name):
    found = {}
    for example, depth in questions(name, 120, 25, 5):
        if name == "passkey":
            found.setdefault(depth, set()).add(example.prompt.index(b"[key=") / (120 - 21))
        if name == "recall":
            pairs = example.prompt.lstrip(b".").partition(b"?")[0]
            place = pairs[::2].index(example.prompt[-1:])
            found.setdefault(depth, set()).add(place / (len(pairs) // 2 - 1))
    assert bool(found) == TASKS[name].has_depth
    for depth, places in found.items():
        assert len(places) == 1 and abs(places.pop() - depth) < 0.03
    if found:
        assert sorted(found) == [0, 0.25, 0.5, 0.75, 1]


@pytest.mark.parametrize("name", TASKS)
def test_training_documents_fill_their_window_and_are_never_asked(name):
    documents = [training_document(name, 48, index) for index in range(100)]
    assert documents == [training_document(name, 48, index) for index in range(100)]
    assert {len(document) for document in documents} == {47}
    sizes = [len(document.rstrip(b"\n")) for document in documents]
    room = 47 - TASKS[name].shortest
    assert max(sizes) == 47 and min(sizes) < TASKS[name].shortest + 0.3 * room
    middle = TASKS[name].shortest + 2 / 3 * room  # the mean of the larger of two even draws
    assert abs(np.mean(sizes) - middle) < 0.1 * room
    for document in documents:
        text = document.rstrip(b"\n")
        assert b"\n" not in text
        # where the prompt ends, for this size, the same function says
        example, _ = next(questions(name, len(text), 1, 5))
        prompt = text[: len(example.prompt)]
        assert text[len(prompt) :] == solve(name, prompt)
    asked = {e.prompt + e.answer for e, _ in questions(name, 47, 100, 5)}
    assert len(asked) == 100 and not asked & {document for document in documents}
    assert asked == {e.prompt + e.answer for e, _ in questions(name, 47, 100, 5)}
    shorter = {e.prompt for e, _ in questions(name, 46, 100, 5)}
    assert not any(prompt.endswith(short.lstrip(b".")) for prompt in asked for short in shorter)


def test_bytes_stay_as_they_are():
    """Records of one version are of the same questions: raise tasks.FORMAT where this must change."""
    found = {name: next(questions(name, 40, 1, 5))[0] for name in TASKS}
    assert {name: (e.prompt + e.answer).decode() for name, e in found.items()} == PINNED
    assert training_document("copy", 40, 0) == b".qrhnhikcjpvuk|qrhnhikcjpvuk\n\n\n\n\n\n\n\n\n\n\n"


PINNED = {
    "passkey": "[key=TNELD]the tide comes in a[key=TNELD",
    "recall": r".Z5;0,1]4z6{9=8R3\8[3?z6]4;0,1\8[3R3{9Z5",
    "copy": ".wdovrmqnexdxwtsljsh|wdovrmqnexdxwtsljsh",
    "reverse": ".oogfujcybnsfmtqycgp<pgcyqtmfsnbycjufgoo",
    "sort": ".hyrghdckkqlqxmvvlxc>ccdghhkkllmqqrvvxxy",
    "addition": ".948867848121+035973460228=9738413193490",
}


def test_a_task_is_a_source():
    documents = dict(itertools.islice(synthetic_documents("reverse:33"), 50))
    assert len(documents) == 50 and {len(text) for text in documents.values()} == {32}
    assert len(set(documents.values())) == 50
    assert next(synthetic_documents("passkey"))[1] == training_document("passkey", 64, 0)
    assert next(iter(synthetic_documents("copy")))[1].count(b"\n") > 100  # the older text
    assert describe("passkey")[1] == describe("passkey:64")[1] != describe("passkey:65")[1]
    assert describe("copy") == (
        "synthetic task copy (40 generated documents)",
        {"synthetic": "copy", "format": 1},
    )


def test_every_training_window_is_one_example(tmp_path):
    fields = {"valid_source": "", "test_source": "", "tokenizer": "byte", "text_column": "text"}
    fields |= {"split": "train", "streaming": False, "max_documents": 200}
    config = data.DataConfig(
        source="synthetic:sort:24", cache_dir=str(tmp_path), isolate_documents=False, **fields
    )
    corpus = data.prepare(config)
    assert len(corpus.valid.names) == len(corpus.test.names) == 10
    batches = data.Batches(corpus.train, 24, 60, seed=0, isolate_documents=False)
    assert batches.windows_per_epoch == 179  # of 180 documents: the last lacks a token behind it
    for row in batches.batch(0)["tokens"]:
        assert row[23] == corpus.tokenizer.separator and (row[:23] < 256).all()
        prompt, mark, answer = row[:23].astype(np.uint8).tobytes().rstrip(b"\n").partition(b">")
        assert answer == solve("sort", prompt + mark)


@pytest.mark.parametrize("name", TASKS)
def test_answers_alone_are_learned(name):
    """Against the examples themselves: the answer, in recall every value asked for, and nothing else."""
    length, separator = 33, 256
    documents = [training_document(name, length, index) for index in range(200)]
    follows = [documents[index - 199][:1] for index in range(200)]  # the next window's first byte
    rows = [[*text, separator, *after] for text, after in zip(documents, follows, strict=True)]
    weights = answer_weights(name, np.array(rows, np.int32))
    assert weights.shape == (200, length) and weights.dtype == np.float32
    for text, row in zip(documents, weights, strict=True):
        example = text.rstrip(b"\n")
        counted = bytes(text[t + 1] for t in np.flatnonzero(row))
        if name == "recall":
            pairs, asked = example.lstrip(b".").split(b"?")
            values = dict(zip(pairs[::2], pairs[1::2], strict=True))
            expected = bytes(values[key] for key in asked[::2])
        elif name == "passkey":
            expected = example[-5:]
        else:
            expected = example[example.rindex(TASKS[name].mark) + 1 :]
        assert counted == expected and expected


@pytest.mark.parametrize("name", TASKS)
def test_nothing_is_learned_where_nothing_is_asked(name):
    assert answer_weights(name, np.full((2, 9), ord("x"))).sum() == 0


def test_batches_of_a_task_count_its_answers(tmp_path):
    config = probe.get_config("copy")
    config.data.cache_dir, config.data.max_documents = str(tmp_path), 200
    given = RunConfig.from_config(config).data
    batches = data.Batches(
        data.prepare(given).train, 32, 60, 0, False, data.weights_of(given.source)
    )
    batch = batches.batch(0)
    np.testing.assert_array_equal(batch["weights"], answer_weights("copy", batch["tokens"]))
    assert 60 <= batch["weights"].sum() < 60 * 16
    assert data.weights_of("synthetic:copy") is None and data.weights_of("shakespeare") is None
    config.data.tokenizer = "bpe:300"
    with pytest.raises(ValueError, match='data.tokenizer="bpe:300" would cut the examples'):
        RunConfig.from_config(config)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("adding", 'unknown task "adding"; give periodic, random, copy, passkey, recall, reverse'),
        ("periodic:64", 'unknown task "periodic"'),
        ("copy:3", 'the length "3" of task copy should be 4 to 1048576 tokens'),
        ("copy:", 'the length "" of task copy'),
        ("recall:400", "should be 8 to 331 tokens"),
        ("passkey:22", "should be 23 to 1048576"),
        ("copy:1048577", "should be 4 to 1048576"),
        ("copy:" + "9" * 5000, "should be 4 to 1048576"),
        ("passkey:1e3", 'the length "1e3"'),
    ],
)
def test_a_mistyped_source_is_named(name, message):
    with pytest.raises(ValueError, match=message):
        parse_task(name)
