"""Protocol probe:TASK: what counts as right, the records, the table and the picture."""

import csv
import json
import math
import shlex
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
from scipy.stats import norm

import evaluation
import models
from configs.probe import get_config as probe_config
from data.synthetic import parse_task
from data.tasks import TASKS, questions
from data.tokenizer import ByteTokenizer, train_bpe
from evaluation import Undefined
from evaluation.curves import gather
from evaluation.model import ModelScore
from evaluation.probe_plot import plot_probes
from evaluation.probes import ANSWERS, probe, task_name
from evaluation.records import FIELDS
from evaluation.statistics import bootstrap_interval
from models import ModelConfig
from training.config import RunConfig

ROOT = Path(__file__).parent.parent
BYTES = ByteTokenizer()
EXTRA = ["accuracy", "accuracy_low", "accuracy_high", "answers", "by_depth"]


class Stub:
    """Predicts `guess(tokens)` [B, ℓ+1] of each token from all before it, with nll 0 where right, else 3."""

    def __init__(self, guess):
        self.guess, self.shapes = guess, []

    def predictions(self, tokens):
        self.shapes.append(tokens.shape)
        right = self.guess(tokens)[:, 1:] == tokens[:, 1:]
        return np.where(right, 0.0, 3.0), right


def oracle(tokens):
    return tokens


def late(tokens):
    """What an oracle would say of the token before: right only where two neighbours are alike."""
    return np.roll(tokens, 1, axis=1)


def ask(guess, task="copy", lengths=(16, 33), batch_size=32):
    return probe(Stub(guess), f"probe:{task}", lengths, BYTES, batch_size)


@pytest.mark.parametrize("task", TASKS)
def test_an_oracle_answers_everything(task):
    for record in ask(oracle, task, (33, 64, 130)):
        assert record["status"] == "ok" and record["accuracy"] == 1 and record["nll"] == 0
        assert record["accuracy_high"] == 1 and 0.975 < record["accuracy_low"] < 0.985
        assert record["answers"] == record["windows"] == record["documents"] == ANSWERS
        size = {"passkey": 5, "recall": 1, "addition": (record["length"] - 1) // 3}
        each = size.get(task, (record["length"] - 2) // 2)
        assert record["tokens_scored"] == ANSWERS * each
        assert record["min_context"] == record["length"] - 1 - each
        if TASKS[task].has_depth:
            assert record["by_depth"] == [[d, 1.0, ANSWERS // 5] for d in (0, 0.25, 0.5, 0.75, 1)]
        else:
            assert record["by_depth"] is None


@pytest.mark.parametrize("task", TASKS)
def test_a_guess_of_the_neighbouring_token_is_wrong(task):
    """An answer read one column off, on either side, would be right for one of these."""
    for guess in (late, lambda tokens: np.roll(tokens, -1, axis=1)):
        for record in ask(guess, task, (40,)):
            assert record["accuracy"] == 0 or task == "recall"
            assert record["accuracy"] < 0.2 and record["nll"] > 1.5


def test_a_stub_that_copies_is_right_where_copying_is():
    def repeat(tokens):
        """The token as far back as copy puts it: m letters and the mark, m + 1 tokens."""
        return np.roll(tokens, (tokens.shape[1] - 3) // 2 + 1, axis=1)

    assert [r["accuracy"] for r in ask(repeat, "copy")] == [1, 1]
    assert [r["accuracy"] for r in ask(repeat, "reverse")] == [0, 0]
    for record in ask(repeat, "sort", (4, 6)):  # right where the letters happen to be in order
        asked = [e for e, _ in questions("sort", record["length"] - 1, ANSWERS, 5)]
        in_order = [e.prompt.strip(b".>") == e.answer for e in asked]
        assert record["accuracy"] == np.mean(in_order) > 0


@pytest.mark.parametrize("task", ["addition", "passkey"])
def test_one_wrong_token_is_a_wrong_answer_and_only_the_answer_counts(task):
    example, _ = next(questions(task, 39, 1, 5))
    first, last = len(example.prompt), 38

    def wrong_at(column, rows=slice(None)):
        def guess(tokens):
            tokens = tokens.copy()
            tokens[rows, column] = 7  # a byte that no example holds
            return tokens

        return ask(guess, task, (40,), batch_size=ANSWERS)[0]

    for column in (first, last):
        found = wrong_at(column)
        assert found["accuracy"] == 0
        assert found["nll"] == pytest.approx(3 / len(example.answer))
    for column in (0, first - 1, 39, 40):
        assert wrong_at(column)["accuracy"] == 1 and wrong_at(column)["nll"] == 0
    third = wrong_at(first, slice(None, None, 4))
    assert third["accuracy"] == 0.75
    z, n = norm.ppf(0.975), ANSWERS  # Wilson's interval, from its formula
    middle = (0.75 + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(0.75 * 0.25 / n + z * z / (4 * n * n))
    assert third["accuracy_low"] == pytest.approx(middle - half, rel=1e-9)
    assert third["accuracy_high"] == pytest.approx(middle + half, rel=1e-9)
    lost = np.zeros(n)
    lost[::4] = 3
    interval = bootstrap_interval(lost, np.full(n, len(example.answer)))
    assert (third["ci_low"], third["ci_high"]) == pytest.approx(interval)
    assert third["bits_per_byte"] == pytest.approx(third["nll"] / math.log(2))


def test_depths_are_told_apart():
    def blind(tokens):
        """Sees the needle in the first half of the window only."""
        tokens = tokens.copy()
        middle = tokens.shape[1] // 2
        needle = np.array([bytes(row[:200].astype(np.uint8)).index(b"=") for row in tokens])
        tokens[needle >= middle, -4] = 7
        return tokens

    (found,) = ask(blind, "passkey", (128,))
    assert found["by_depth"] == [[0, 1, 40], [0.25, 1, 40], [0.5, 1, 40], [0.75, 0, 40], [1, 0, 40]]
    assert found["accuracy"] == 0.6


@pytest.mark.parametrize("batch_size", [1, 7, 200, 256])
def test_every_question_is_asked_once_whatever_the_batch(batch_size):
    seen = []

    def record(tokens):
        seen.extend(map(bytes, tokens.astype("<u2")))
        return late(tokens)

    expected = ask(late, "copy", (17,))[0]
    found = ask(record, "copy", (17,), batch_size)[0]
    assert found | {"seconds": 0} == expected | {"seconds": 0}
    assert len(dict.fromkeys(seen)) == ANSWERS and len(seen) < ANSWERS + batch_size
    window = np.frombuffer(seen[0], "<u2")
    assert len(window) == 18 and (window[:16] < 256).all()
    assert (window[16:] == BYTES.separator).all()


def test_trouble_is_a_record_and_the_others_go_on():
    def troubled(tokens):
        match tokens.shape[1] - 1:
            case 10:
                raise Undefined("the table ends")
            case 11:
                raise MemoryError
            case 12:
                raise RuntimeError("broken")
            case 13:
                return tokens[:, :-1]
            case 14:
                return tokens.astype(np.float32)
        return tokens

    stub = Stub(troubled)
    predictions = stub.predictions
    stub.predictions = lambda tokens: (
        (np.full((len(tokens), 14), np.nan), np.ones((len(tokens), 14), bool))
        if tokens.shape[1] == 15
        else predictions(tokens)
    )
    steps = []
    lengths = (2, 3, 4, 10, 11, 12, 13, 14, 16)
    found = probe(stub, "probe:copy", lengths, BYTES, 32, lambda *at: steps.append(at))
    assert [r["status"] for r in found] == [
        "insufficient_data", "insufficient_data", "ok", "undefined", "out_of_memory", "failed",
        "failed", "non_finite", "ok",
    ]  # fmt: skip
    assert [r["length"] for r in found] == list(lengths)
    assert (
        found[0]["reason"] == "an example of copy has at least 3 tokens, and one token follows it"
    )
    assert found[3]["reason"] == "the table ends"
    for record in found:
        if record["status"] != "ok":
            assert record["accuracy"] is record["nll"] is record["by_depth"] is None
            assert record["answers"] == record["tokens_scored"] == 0 and record["reason"]
    assert len(steps) == len(lengths) and steps[-1][0] == steps[-1][1]
    (long,) = ask(oracle, "recall", (400,))
    assert long["status"] == "insufficient_data" and "at most 330 tokens" in long["reason"]


def test_mistakes_are_named_before_anything_is_scored():
    with pytest.raises(ValueError, match="'probe:coppy' is unknown: the tasks are passkey, recall"):
        task_name("probe:coppy", BYTES)
    bpe = train_bpe("bpe:258", [b"ab" * 50])
    with pytest.raises(ValueError, match=r"'probe:copy' .* in bytes: .*\"byte\", not \"bpe:258\""):
        probe(Stub(oracle), "probe:copy", [16], bpe, 32)


def as_run(records, scheme="rope", seed=0):
    about = {"run": f"runs/{scheme}", "scheme": scheme, "seed": seed, "step": 9, "factor": None}
    return [r | about | {"train_length": 16, "config_hash": scheme} for r in records]


def test_records_tables_and_pictures_cope(tmp_path):
    records = as_run(ask(oracle, "passkey", (16, 64))) + as_run(
        ask(late, "passkey", (16, 64)), "t5"
    )
    losses = evaluation.sweep(
        lambda t: t[:, 1:] / 9.0, [np.arange(99, dtype=np.int32)], [16, 64], "disjoint"
    )
    records += as_run(losses)
    evaluation.write_records(tmp_path, records)
    found = evaluation.read_records(tmp_path)
    for row in found[:4]:
        assert list(row) == [*FIELDS, *EXTRA]
    assert list(found[-1]) == FIELDS
    assert found[1]["by_depth"][0] == [0, 1, 40]
    with (tmp_path / "curves.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[1]["accuracy"] == "1.0" and json.loads(rows[1]["by_depth"]) == found[1]["by_depth"]
    assert rows[0]["accuracy"] == rows[0]["by_depth"] == rows[-1]["accuracy"] == ""
    table = evaluation.format_table(found)
    assert "probe:passkey: share of answers wholly right, 200 questions at each length" in table
    (line,) = [x for x in table.splitlines() if x.startswith("runs/rope") and "1.000" in x]
    assert line.split() == ["runs/rope", "rope", "too", "short", "1.000"]
    assert "disjoint: nll in nats per token" in table

    probes = [r for r in found if r["protocol"].startswith("probe:")]
    plot_probes(probes, tmp_path)
    first = (tmp_path / "probes.svg").read_bytes()
    assert b">passkey<" in first and b">training length 16<" in first and b">t5<" in first
    assert (tmp_path / "probes.png").stat().st_size > 10_000
    plot_probes(probes, tmp_path)
    assert (tmp_path / "probes.svg").read_bytes() == first
    plot_probes([r | {"accuracy": r["accuracy"] and 0.5} for r in probes], tmp_path)
    assert (tmp_path / "probes.svg").read_bytes() != first  # it is accuracy that is drawn
    plot_probes([], tmp_path)  # what an earlier evaluation drew would pass for this one's
    assert not (tmp_path / "probes.svg").exists() and not (tmp_path / "probes.png").exists()
    assert gather(found, "disjoint")[0].scheme == "rope"


def test_a_model_is_right_where_its_logits_are_highest():
    """Greedy decoding, token by token, writes what counts as right; a length compiles once."""
    config = ModelConfig(
        num_layers=1, d_model=16, num_heads=2, num_kv_heads=0, attention="softmax", latent_size=0,
        rope_size=0, query_latent_size=0, d_ff=16, activation="swiglu", dropout=0.0,
        dtype="float32", remat=False, tie_embeddings=True, position="learned", vocab_size=257,
        train_length=24,
    )  # fmt: skip
    graph, params = models.split(models.build(config, seed=0))
    forward = jax.jit(lambda tokens: models.merge(graph, params)(tokens))
    score = ModelScore(config, "learned", params)
    tokens = np.random.default_rng(0).integers(0, 257, (5, 13), dtype=np.int32)
    for column in range(1, 13, 2):  # greedy decoding, for every other token
        tokens[:, column] = np.asarray(forward(tokens[:, :-1]))[:, column - 1].argmax(-1)
    nll, right = score.predictions(tokens)
    assert right[:, ::2].all() and not right[:, 1::2].all()
    logits = np.asarray(forward(tokens[:, :-1]))
    np.testing.assert_array_equal(right, logits.argmax(-1) == tokens[:, 1:])
    np.testing.assert_allclose(nll, score(tokens), rtol=1e-6)
    compiled = len(score.compiled)
    found = probe(score, "probe:sort", [12, 25], BYTES, 5)
    assert [r["status"] for r in found] == ["ok", "undefined"] and "learned" in found[1]["reason"]
    assert len(score.compiled) == compiled == 2


def test_the_study_asks_every_run_its_own_task(tmp_path):
    from configs.studies.probes import SCHEMES, TASKS

    words = ["study.py", "--config=configs/studies/probes.py", f"--workdir={tmp_path}"]
    done = subprocess.run(
        [sys.executable, *words, "--print_commands"], cwd=ROOT, capture_output=True, text=True
    )
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    commands = [shlex.split(line)[1:] for line in lines]
    trained, asked = commands[: len(TASKS) * len(SCHEMES)], commands[len(TASKS) * len(SCHEMES) :]
    assert {words[0] for words in trained} == {"train.py"} and len(asked) == len(TASKS)
    for task, words in zip(TASKS, asked, strict=True):
        names = [f"{tmp_path}/{task}_{scheme}" for scheme in SCHEMES]
        assert f"--runs={','.join(names)}" in words and f"--protocols=probe:{task}" in words
        mine = [w for w in trained if any(f"--workdir={name}" in w for name in names)]
        assert len(mine) == len(SCHEMES) and all(f"probe.py:{task}" in w[1] for w in mine)
        source = RunConfig.from_config(probe_config(task)).data.source
        length = 16 if task == "addition" else 32
        assert parse_task(source.removeprefix("synthetic:")) == (task, length)
        assert probe_config(task).train.length == length


def test_examples_that_windows_would_cut_are_refused():
    config = probe_config("sort")
    config.train.length = 48
    with pytest.raises(ValueError, match='length=32, and windows of 48 .* "synthetic:sort:48"'):
        RunConfig.from_config(config)
    config.data.source = "synthetic:sort:48"
    assert RunConfig.from_config(config).train.length == 48
    config.data.valid_source = "synthetic:sort:64"
    with pytest.raises(ValueError, match="data.valid_source=.* windows of 48 .*"):
        RunConfig.from_config(config)


@pytest.mark.slow
def test_a_small_model_learns_to_answer_and_the_commands_say_so(tmp_path):
    """Trained to copy up to four letters, in windows of 10: right at 10, and at nothing else than copying."""
    words = [sys.executable, f"{ROOT}/train.py", f"--config={ROOT}/configs/probe.py:copy"]
    words += ["--config.data.source=synthetic:copy:10", "--config.train.length=10"]
    words += [f"--config.data.cache_dir={tmp_path}/cache", f"--workdir={tmp_path}/copy"]
    words += ["--config.mesh.data=1", "--config.train.steps=1200"]
    subprocess.run(words, check=True)
    words = [sys.executable, f"{ROOT}/eval_extrapolation.py", f"--runs={tmp_path}/copy"]
    words += [f"--out={tmp_path}/report", "--lengths=3,8,10"]
    done = subprocess.run(
        [*words, "--protocols=probe:copy,probe:sort"], capture_output=True, text=True, check=True
    )
    assert "probe:copy: share of answers wholly right" in done.stdout
    found = {(r["protocol"], r["length"]): r for r in evaluation.read_records(tmp_path / "report")}
    assert [r["status"] for r in found.values()] == ["insufficient_data", "ok", "ok"] * 2
    assert found["probe:copy", 10]["accuracy"] > 0.9
    assert found["probe:sort", 10]["accuracy"] < 0.2  # another task than it was trained on
    names = {path.name for path in (tmp_path / "report").iterdir()}
    assert names == {"records.jsonl", "curves.csv", "probes.png", "probes.svg", "report.html"}
    done = subprocess.run([*words, "--protocols=probe:coppy"], capture_output=True, text=True)
    assert done.returncode == 2 and "probe:coppy" in done.stderr
    assert len(done.stderr.splitlines()) == 1
