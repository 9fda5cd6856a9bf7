"""What an evaluation is about to measure: which runs, schemes, lengths, weights and text."""

import json
import types

import numpy as np
import pytest
from test_train import tiny

import data
import eval_extrapolation as command
import evaluation
import models
from evaluation import collection, measuring
from evaluation.model import ModelScore
from training import checkpoint
from training.config import RunConfig

POSITION = "rope:base=500"


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def given(monkeypatch):
    """Sets flags for one test: given(lengths="32")."""

    def give(**values):
        defaults = {"schemes": None, "lengths": None, "protocols": "fixed", "stride": None}
        defaults |= {"targets": None, "checkpoint": "latest", "text": None, "diagnostics": False}
        for name, value in (defaults | {"append": False} | values).items():
            monkeypatch.setattr(command, name.upper(), type("Flag", (), {"value": value}))

    return give


@pytest.fixture
def run(cache, monkeypatch):
    """A run of fresh weights, as `load_run` reads one back, under any name; `run.of(position)` is another."""

    def of(position=POSITION, **train):
        config = RunConfig.from_config(tiny(cache, position, steps=20, **train))
        corpus = data.prepare(config.data)
        model_config = config.model_config(corpus.tokenizer.vocab_size)
        params = models.split(models.build(model_config, config.seed))[1]
        record = {"corpus": {"key": corpus.meta["key"]}}
        made = checkpoint.Run(
            cache / "r", config, model_config, corpus.tokenizer, record, 20, params
        )
        monkeypatch.setattr(checkpoint, "load_run", lambda name, step: made)
        return made, corpus

    return types.SimpleNamespace(of=of)


def same(documents, others):
    return len(documents) == len(others) and all(map(np.array_equal, documents, others))


def test_the_plan_of_a_run(run, given):
    made, corpus = run.of()
    given(runs="a,./a,a/", protocols="fixed,disjoint,fixed")
    fixed, disjoint = command.plan()
    assert (fixed.protocol, disjoint.protocol) == ("fixed", "disjoint")
    assert fixed.lengths == [16, 32, 64, 128, 256] and fixed.targets == 16 and fixed.stride is None
    text = measuring.text_fingerprint(corpus.test.documents())
    assert disjoint.about == {
        "run": "a", "scheme": POSITION, "seed": 0, "step": 20, "train_length": 16, "text": text,
        "config_hash": made.config.hash(), "weights": measuring.weights_fingerprint(made.params),
    }  # fmt: skip
    longest = max(n for n in fixed.lengths if n < max(map(len, corpus.test.documents())))
    assert fixed.about == disjoint.about | {"targets": 16, "longest": longest}
    assert fixed.score is disjoint.score


def test_the_test_documents_are_scored_and_no_others(run, given):
    _, corpus = run.of()
    given(runs="a")
    (task,) = command.plan()
    assert same(task.documents, corpus.test.documents())
    for others in (corpus.valid.documents(), corpus.train.documents()):
        assert not same(task.documents, others)
        assert not {d.tobytes() for d in task.documents} & {d.tobytes() for d in others}


def test_other_text_takes_their_place(run, given, tmp_path):
    run.of()
    (tmp_path / "a.txt").write_bytes(b"abc" * 9)
    given(runs="a", text=str(tmp_path / "a.txt"), lengths="64,20", targets=8)
    (task,) = command.plan()
    assert same(task.documents, [np.frombuffer(b"abc" * 9, np.uint8)])
    assert (task.lengths, task.targets, task.about["longest"]) == ([20, 64], 8, 20)


def test_text_that_training_may_have_seen_is_refused(run, given):
    made, _ = run.of()
    made.record["corpus"]["key"] = "other"
    given(runs="a")
    with pytest.raises(ValueError, match="no longer the text that .* was trained on"):
        command.plan()
    given(runs="a", protocols="probe:copy", lengths="16")  # which needs none
    (task,) = command.plan()
    assert "text" not in task.about and len(task.documents) == 0


@pytest.mark.parametrize(
    "trained, asked, factors, position",
    [
        ("pi:factor=4", "dynamic_ntk", [1, 2, 4], "dynamic_ntk"),
        ("yarn:factor=8", "dynamic_ntk:factor=2", [1, 3, 7], "dynamic_ntk:factor=2.0"),
        ("dynamic_ntk:factor=3", "pi", [1, 2, 4], "pi"),
        ("dynamic_ntk:factor=3", "dynamic_ntk", [1, 4, 10], "dynamic_ntk:factor=3.0"),
        ("pi:factor=4", "dynamic_pi", [1, 2, 4], "dynamic_pi"),
        ("pi:factor=4", "dynamic_yarn", [1, 2, 4], "dynamic_yarn"),
        ("pi:factor=4", "yarn", [4, 4, 4], "yarn:factor=4.0"),
        ("pi:factor=4", "rope", [None] * 3, "rope"),
        (POSITION, "ntk", [1, 2, 4], "ntk:base=500.0"),
        (POSITION, "ntk:factor=2,base=100", [2, 2, 2], "ntk:base=100.0,factor=2.0"),
    ],
)
def test_the_factor_in_use_under_another_scheme(run, given, trained, asked, factors, position):
    """A fixed factor of the trained scheme does not go into a dynamic one, nor the other way."""
    run.of(trained)
    given(runs="a", schemes=asked, lengths="16")
    (task,) = command.plan()
    assert [task.score.factor(n) for n in (16, 32, 64)] == factors
    assert task.score.model.config.position.replace(".0", "") == position.replace(".0", "")


@pytest.mark.parametrize(
    "values, message",
    [
        ({"schemes": "alibi"}, "a checkpoint of rope:base=500 cannot be read as alibi"),
        ({"schemes": "learned"}, "lacks learned.table"),
        ({"schemes": "yarn:factr=2"}, "yarn has no option factr; did you mean factor?"),
        ({"lengths": "16,1.5"}, "'1.5' must be a positive whole number"),
        ({"protocols": "fixd"}, "protocol 'fixd' is unknown: choose one of fixed,"),
        ({"protocols": "probe:sing"}, "protocol 'probe:sing' is unknown: the tasks are"),
        ({"targets": 17, "lengths": "16"}, "targets 17 exceeds the shortest of lengths, 16"),
        ({"targets": 16, "stride": 8}, "stride 8 makes blocks of 16 targets overlap"),
        ({"protocols": "sliding", "stride": 17}, "stride 17 would skip targets at length 16"),
        ({"text": "/nowhere/*.txt"}, "/nowhere"),
    ],
)
def test_a_mistake_is_found_before_anything_is_measured(run, given, values, message):
    run.of()
    given(**{"runs": "a", **values})
    with pytest.raises(ValueError) as caught:
        command.plan()
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "values, message",
    [
        ({"runs": ","}, "--runs=, names nothing"),
        ({"protocols": ","}, "--protocols=, names nothing"),
        ({"protocols": ""}, "--protocols= names nothing"),
        ({"lengths": ""}, "--lengths= names nothing"),
        ({"lengths": " , "}, "--lengths= ,  names nothing"),
        ({"schemes": ","}, "--schemes=, names nothing: leave it out for each run's own"),
        ({"schemes": ""}, "--schemes= names nothing"),
        ({"checkpoint": ""}, "--checkpoint= is empty"),
        ({"text": ""}, "--text= is empty"),
        ({"text": " "}, "--text= is empty"),
        (
            {"diagnostics": True, "protocols": "disjoint"},
            "--diagnostics reads the windows of fixed",
        ),
    ],
)
def test_an_empty_flag_is_no_default(given, values, message):
    given(**{"runs": "runs/none", **values})
    with pytest.raises(ValueError) as caught:
        command.plan()
    assert message in str(caught.value)


def test_what_the_plan_notes(run, given, capsys):
    made, _ = run.of()
    given(runs="a", schemes="rope,pi:factor=1,dynamic_ntk", protocols="position", stride=8)
    command.plan()
    assert capsys.readouterr().err.splitlines() == [
        "note: pi:factor=1: factor=1 is plain rope at every length",
        "note: dynamic_ntk follows the length at hand, so position shows it as it is at the "
        "longest length, at earlier positions too; fixed or disjoint show it at each length",
        "note: --stride goes to fixed and sliding; position takes none",
    ]
    object.__setattr__(made, "step", 7)
    given(runs="a")
    command.plan()
    assert capsys.readouterr().err == "note: a is at step 7 of 20\n"
    given(runs="a", checkpoint="best")
    command.plan()
    assert capsys.readouterr().err == ""


def test_what_a_flag_does_not_reach_is_said(given, capsys):
    given(stride=64, targets=16, text="x")
    command.tell_unused(["fixed"])
    assert capsys.readouterr().err == ""
    command.tell_unused(["fixed", "sliding", "disjoint"])
    assert capsys.readouterr().err == (
        "note: --stride goes to fixed and sliding; disjoint takes none\n"
        "note: --targets goes to fixed; sliding, disjoint takes none\n"
    )
    given(text="x")
    command.tell_unused(["probe:copy"])
    assert "--text is not read" in capsys.readouterr().err


class Stub:
    """A score that needs no compiling."""

    def __init__(self, fails=()):
        self.fails = fails

    def __call__(self, tokens):
        if tokens.shape[1] - 1 in self.fails:
            raise self.fails[tokens.shape[1] - 1]
        return tokens[:, 1:] / 9.0

    def factor(self, length):
        return None


def evaluated(out, fails=(), keep=True, lengths=(8, 16)):
    about = {"run": "a", "scheme": "rope", "seed": 0, "step": 1, "train_length": 8}
    about |= {"config_hash": "c", "weights": "w"}
    tokenizer = types.SimpleNamespace(token_bytes=np.ones(9, np.int64), name="byte")
    task = measuring.Task(about, None, tokenizer, Stub(fails), "fixed", list(lengths), None, 8)
    documents = [np.arange(99, dtype=np.int32) % 9]
    task.read(documents, measuring.text_fingerprint(documents))
    out.mkdir(exist_ok=True)
    return command.evaluate([task], collection.Collection(out, keep))


@pytest.fixture
def quick(monkeypatch, given):
    """Without the pictures."""
    drawn = []
    monkeypatch.setattr(command, "draw", lambda *args: drawn.append(args))
    given(runs="a", out="o")
    return drawn


@pytest.mark.parametrize(
    "error, status",
    [(MemoryError(), 1), (RuntimeError("x"), 1), (evaluation.Undefined("x"), 0), (None, 0)],
)
def test_the_exit_status_tells_of_this_evaluations_points(tmp_path, quick, error, status):
    fails = {16: error} if error else {}
    assert evaluated(tmp_path, fails) == status
    (records, targets, out), *_ = quick
    assert [(r["protocol"], r["length"]) for r in records] == [
        ("fixed", 8), ("fixed", 16), ("cropped", 8),
    ]  # fmt: skip
    assert out == tmp_path and len(targets["a", "rope"]) == (2 if error else 3)
    if status:
        assert evaluated(tmp_path) == 0  # mended, and what was measured before is kept


def test_an_interruption_draws_what_was_measured(tmp_path, quick, capsys):
    assert evaluated(tmp_path, {16: KeyboardInterrupt()}) == 130
    assert [r["length"] for r in quick[0][0]] == [8]
    assert "interrupted: what was measured before is written" in capsys.readouterr().err
    before = (tmp_path / "records.jsonl").read_bytes()
    assert evaluated(tmp_path, {8: KeyboardInterrupt()}, keep=False) == 130
    assert len(quick) == 1 and (tmp_path / "records.jsonl").read_bytes() == before


def test_a_full_disk_ends_the_command_in_one_line(run, given, tmp_path, monkeypatch, capsys):
    """Also while pictures are drawn; what was measured stands."""
    run.of()
    given(runs="a", out=str(tmp_path / "out"), lengths="16", protocols="disjoint")
    monkeypatch.setattr(ModelScore, "__call__", lambda self, tokens: tokens[:, 1:] / 9.0)

    def full(*args):
        raise OSError(28, "No space left on device", "curves.png")

    monkeypatch.setattr(command, "draw", full)
    with pytest.raises(SystemExit) as ended:
        command.main()
    said = capsys.readouterr().err.splitlines()
    assert ended.value.code == 2 and "out cannot be written ([Errno 28] No space left" in said[-1]
    rows = (tmp_path / "out" / "records.jsonl").read_text().splitlines()
    assert [json.loads(row)["status"] for row in rows] == ["ok"]
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["curves.csv", "records.jsonl"]
    drawn = []
    monkeypatch.setattr(command, "draw", lambda *args: drawn.append(args))
    given(runs="a", out=str(tmp_path / "out"), lengths="16", protocols="disjoint", append=True)
    assert command.main() == 0 and len(drawn) == 1
    assert "kept: 1 measured before" in capsys.readouterr().err
