"""From a trained run to records, tables and pictures, through the commands as users type them."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from test_train import ROOT, tiny, train_to_end

import evaluation
import models
from evaluation import Undefined, programs
from evaluation.diagnostics import read_diagnostics
from evaluation.model import ModelScore

FIELDS = (
    "run scheme seed step protocol length stride train_length factor status reason tokens_scored "
    "windows documents clusters min_context nll_sum nll ci_low ci_high ppl bits_per_byte seconds config_hash"
).split()

DIAGNOSTICS = (
    "run scheme seed length train_length layer entropy mean_distance beyond first largest_logit "
    "unseen_angles windows rows"
).split()


def command(*words):
    done = subprocess.run(
        [sys.executable, ROOT / words[0], *words[1:]], capture_output=True, text=True
    )
    return done.returncode, done.stdout, done.stderr


def records(out):
    return [json.loads(line) for line in (out / "records.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    tmp = tmp_path_factory.mktemp("runs")
    for name, position in (("rope", "rope:base=500"), ("learned", "learned")):
        config = tiny(tmp, position, steps=20, save_every=0)
        assert train_to_end(config, tmp / name) == 0
    return tmp


@pytest.fixture(scope="module")
def swept(runs):
    """A rope run of a base of its own under five schemes, and its exit status and output."""
    out = runs / "report"
    result = command(
        "eval_extrapolation.py",
        f"--runs={runs}/rope/",
        f"--out={out}",
        "--schemes=rope,pi:factor=1,yarn:factor=8,beta_fast=16,rope+log_n,dynamic_ntk",
        "--lengths=64,16,32,16,1000000",
        "--targets=16",
        "--protocols=fixed,disjoint,sliding,position",
    )
    return out, *result


def test_the_sweep_writes_every_file_and_ends_well(swept):
    out, status, stdout, stderr = swept
    assert status == 0, stderr
    assert "note: pi:factor=1: factor=1 is plain rope at every length" in stderr
    assert "note: dynamic_ntk follows the length at hand, so position shows it" in stderr
    assert stderr.count("follows the length at hand") == 1 and "records from one pass" in stderr
    names = {path.name for path in out.iterdir()}
    assert names == {
        "records.jsonl", "curves.csv", "positions.csv", "targets.npz", "statistics.jsonl",
        "curves.png", "curves.svg", "report.html",
    }  # fmt: skip
    assert "yarn:factor=8,beta_fast=16" in stdout and "cropped" in stdout


def test_records_have_the_fields_and_schemes_asked_for(swept):
    found = records(swept[0])
    assert [list(r)[: len(FIELDS)] for r in found] == [FIELDS] * len(found)
    schemes = list(dict.fromkeys(r["scheme"] for r in found))
    assert schemes == [
        "rope",
        "pi:factor=1",
        "yarn:factor=8,beta_fast=16",
        "rope+log_n",
        "dynamic_ntk",
    ]
    fixed = [r for r in found if r["protocol"] == "fixed" and r["scheme"] == "rope"]
    assert [r["length"] for r in fixed] == [16, 32, 64, 1000000]  # sorted and merged
    assert [r["status"] for r in fixed] == ["ok"] * 3 + ["insufficient_data"]
    assert fixed[-1]["nll"] is None and fixed[-1]["tokens_scored"] == 0 and fixed[-1]["reason"]
    assert {r["train_length"] for r in found} == {16} and {r["step"] for r in found} == {20}


def test_a_scheme_named_takes_the_trained_ones_options(swept):
    """The run has a base of its own, 500: `rope` and `pi:factor=1` still reproduce it exactly."""
    found = {(r["scheme"], r["length"]): r for r in records(swept[0]) if r["protocol"] == "fixed"}
    for n in (16, 32, 64):
        assert found["pi:factor=1", n]["nll"] == found["rope", n]["nll"]
    assert found["yarn:factor=8,beta_fast=16", 16]["nll"] != found["rope", 16]["nll"]
    assert found["dynamic_ntk", 16]["nll"] == found["rope", 16]["nll"]
    assert found["rope+log_n", 16]["nll"] == found["rope", 16]["nll"]
    assert found["rope+log_n", 64]["nll"] != found["rope", 64]["nll"]


def test_factor_is_the_number_used(swept):
    found = {
        (r["scheme"], r["length"]): r["factor"]
        for r in records(swept[0])
        if r["protocol"] == "fixed"
    }
    assert found["rope", 64] is None and found["rope+log_n", 64] is None
    assert found["pi:factor=1", 64] == 1 and found["yarn:factor=8,beta_fast=16", 32] == 8
    assert [found["dynamic_ntk", n] for n in (16, 32, 64)] == [1, 2, 4]


def test_targets_are_kept_for_paired_comparisons(swept):
    with np.load(swept[0] / "targets.npz") as arrays:
        name = next(key for key in arrays if key.endswith("|rope|64"))
        nll, clusters = arrays[name], arrays["clusters"]
    found = next(r for r in records(swept[0]) if r["protocol"] == "fixed" and r["length"] == 64)
    assert len(nll) == len(clusters) == found["tokens_scored"]
    np.testing.assert_allclose(nll.mean(), found["nll"], rtol=1e-9)


def test_statistics_are_written_of_every_curve_and_pair(swept):
    rows = evaluation.read_statistics(swept[0])
    found = {(r["scheme"], r["length"]): r for r in records(swept[0]) if r["protocol"] == "fixed"}
    curves = {(r["label"], r["length"]): r for r in rows if r["kind"] == "curve"}
    assert set(curves) == {key for key, r in found.items() if r["status"] == "ok"}
    for key, row in curves.items():
        for name in ("nll", "ci_low", "ci_high"):
            assert row[name] == pytest.approx(found[key][name], rel=1e-6)
        assert row["clusters"] == found[key]["clusters"]
    pairs = {(r["a"], r["b"], r["length"]): r for r in rows if r["kind"] == "difference"}
    assert len(pairs) == 3 * 5 * 4 // 2
    same = pairs["rope", "pi:factor=1", 64]
    assert (same["difference"], same["ci_low"], same["verdict"]) == (0, 0, "undecided")
    asked = {(r["label"], r["length"]) for r in rows if r["kind"] == "context"}
    assert asked == {(scheme, n) for scheme, _ in found for n in (32, 64)}  # L + targets - 1 = 31


def test_learned_is_undefined_past_its_table_and_other_runs_can_be_appended(runs, swept):
    out = swept[0]
    before = records(out)
    status, stdout, stderr = command(
        "eval_extrapolation.py", f"--runs={runs}/learned", f"--out={out}", "--append",
        "--lengths=16,32", "--targets=16", "--diagnostics",
    )  # fmt: skip
    assert status == 0, stderr
    found = records(out)
    assert found[: len(before)] == before
    again = command(
        "eval_extrapolation.py", f"--runs={runs}/rope", f"--out={out}", "--append",
        "--schemes=rope", "--lengths=32", "--protocols=disjoint", "--targets=16",
    )  # fmt: skip
    assert again[0] == 0, again[2]
    points = [(r["scheme"], r["protocol"], r["length"]) for r in records(out)]
    assert len(points) == len(found) and set(points) == {
        (r["scheme"], r["protocol"], r["length"]) for r in found
    }
    mine = [r for r in found[len(before) :] if r["protocol"] == "fixed"]
    assert [r["status"] for r in mine] == ["ok", "undefined"]
    assert "max_length=16" in mine[1]["reason"] and "undef." in stdout
    with np.load(out / "targets.npz") as arrays:
        assert any(key.endswith("|rope|64") for key in arrays) and any(
            "learned" in key for key in arrays
        )
        assert any(key.endswith("|rope|cropped 16") for key in arrays)
    rows = evaluation.read_statistics(out)  # the earlier runs are in it, from their losses on disk
    labels = {r["label"] for r in rows if r["kind"] == "curve"}
    assert labels == {r["scheme"] for r in found}
    rows = read_diagnostics(out)  # asked for once, and kept by the evaluation after it
    assert [(r["run"], r["scheme"], r["seed"], r["length"], r["layer"]) for r in rows] == [
        (f"{runs}/learned", "learned", 0, 16, 0)
    ]
    assert all(list(r) == DIAGNOSTICS for r in rows)
    assert rows[0]["unseen_angles"] is None and rows[0]["rows"] == 16 * rows[0]["windows"]


@pytest.mark.slow
def test_diagnostics_stand_with_the_curve_they_explain(runs, tmp_path):
    words = ["eval_extrapolation.py", f"--runs={runs}/rope", f"--out={tmp_path}/out"]
    words += ["--stride=4096", "--targets=16"]
    rows = lambda: [
        (r["scheme"], r["length"], r["unseen_angles"])
        for r in read_diagnostics(tmp_path / "out")
        if r["layer"] == 0
    ]
    every = ("--schemes=rope,pi", "--lengths=16,64", "--diagnostics")
    status, _, stderr = command(*words, *every)
    assert status == 0 and "diagnostics: " in stderr, stderr
    assert [row[:2] for row in rows()] == [("rope", 16), ("rope", 64), ("pi", 16), ("pi", 64)]
    assert [row[2] for row in rows()][:1] + [row[2] for row in rows()][2:] == [0, 0, 0]
    assert rows()[1][2] > 0
    status, _, stderr = command(*words, "--schemes=pi", "--lengths=16", "--append")
    assert status == 0 and "diagnostics" not in stderr, stderr
    # another longest length is other targets: nothing of the first pi curve stands
    assert [row[:2] for row in rows()] == [("rope", 16), ("rope", 64)]
    status, _, stderr = command(*words, "--schemes=pi", "--lengths=16")
    assert status == 0 and not (tmp_path / "out/diagnostics.jsonl").exists(), stderr


@pytest.mark.slow
def test_segments_are_read_with_a_memory_where_it_is_asked_for(runs, tmp_path):
    status, stdout, stderr = command(
        "eval_extrapolation.py", f"--runs={runs}/rope,{runs}/learned", f"--out={tmp_path}/out",
        "--protocols=disjoint,recurrent", "--lengths=8,16,40",
    )  # fmt: skip
    assert status == 0, stderr
    assert "recurrent: nll" in stdout and "undef." in stdout
    found = {(r["scheme"], r["protocol"], r["length"]): r for r in records(tmp_path / "out")}
    for scheme in ("rope:base=500", "learned"):
        same = found[scheme, "recurrent", 16]
        assert same["nll"] == pytest.approx(found[scheme, "disjoint", 16]["nll"], rel=1e-5)
        assert found[scheme, "recurrent", 8]["status"] == "undefined"
    memory = found["rope:base=500", "recurrent", 40]
    assert memory["status"] == "ok" and memory["stride"] == 16 and memory["nll"] != same["nll"]
    assert memory["tokens_scored"] == same["tokens_scored"] and memory["windows"] == same["windows"]
    assert found["learned", "recurrent", 40]["status"] == "undefined"
    assert "attention span" in (tmp_path / "out/report.html").read_text()


@pytest.mark.parametrize(
    "words, message",
    [
        (["--schemes=alibi"], "a checkpoint of rope:base=500 cannot be read as alibi"),
        pytest.param(["--runs=,"], "--runs=, names nothing", marks=pytest.mark.slow),
        pytest.param(["--checkpoint=7"], "no checkpoint 7", marks=pytest.mark.slow),
        pytest.param(
            ["--checkpoint=newest"], "must be latest, best or a step", marks=pytest.mark.slow
        ),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_evaluated(runs, tmp_path, words, message):
    words = [f"--runs={runs}/rope", f"--out={tmp_path}/out", "--targets=16", *words]
    status, _, stderr = command("eval_extrapolation.py", *words)
    assert status == 2 and message in stderr and stderr.count("\n") == 1, stderr
    assert not (tmp_path / "out").exists()


def test_other_text_can_be_scored(runs, tmp_path):
    (tmp_path / "a.txt").write_bytes(bytes(range(1, 256)) * 4 + b"four")
    words = [f"--runs={runs}/rope", f"--out={tmp_path}/out", f"--text={tmp_path}/a.txt"]
    status, _, stderr = command("eval_extrapolation.py", *words, "--lengths=32", "--stride=64")
    assert status == 0, stderr
    found = records(tmp_path / "out")
    assert found[0]["documents"] == 1 and found[0]["tokens_scored"] == 32 * 16
    assert found[0]["bits_per_byte"] == pytest.approx(found[0]["nll"] / np.log(2))


CONFIG = models.ModelConfig(
    num_layers=1, d_model=16, num_heads=2, num_kv_heads=2, attention="softmax", latent_size=0, rope_size=0,
    query_latent_size=0, d_ff=16, activation="gelu", dropout=0.5, dtype="float32", remat=False,
    tie_embeddings=True, position="rope", vocab_size=11, train_length=8,
)  # fmt: skip


@pytest.mark.parametrize("position", ["rope", "dynamic_ntk", "alibi"])
def test_rows_are_scored_independently(position):
    model = models.build(CONFIG, seed=0)
    params = models.split(model)[1]
    score = ModelScore(CONFIG, position, params)
    tokens = np.random.default_rng(0).integers(0, 11, (3, 21), dtype=np.int32)
    nll = score(tokens)
    assert nll.shape == (3, 20)
    for row in range(3):
        np.testing.assert_allclose(score(tokens[row : row + 1]), nll[row : row + 1], atol=1e-5)


def test_score_against_the_plain_forward():
    model = models.build(CONFIG, seed=0)
    tokens = np.random.default_rng(0).integers(0, 11, (3, 21), dtype=np.int32)
    logits = jax.nn.log_softmax(model(jnp.asarray(tokens[:, :-1])))
    expected = -np.take_along_axis(np.asarray(logits), tokens[:, 1:, None], axis=2)[..., 0]
    score = ModelScore(CONFIG, "rope", models.split(model)[1])
    compiled = programs.compiled.cache_info
    before = compiled().misses
    np.testing.assert_allclose(score(tokens), expected, atol=1e-5)
    assert len(score.compiled) == 1
    score(tokens)
    score(tokens[:, :11])
    assert len(score.compiled) == 2 and compiled().misses <= before + 2  # one for each length


def test_filled_up_rows_are_scored_once():
    score = ModelScore(CONFIG, "rope", models.split(models.build(CONFIG, seed=0))[1])
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 11, (2, 9), dtype=np.int32)
    batch = np.concatenate([rows, np.repeat(rows[-1:], 6, axis=0)])
    calls = []
    run = score.at(8, 1)
    score.at = lambda length, n, measure: lambda params, t: calls.append(len(t)) or run(params, t)
    import evaluation.model as module

    old, module.CHUNK_TOKENS = module.CHUNK_TOKENS, 8
    try:
        nll = score(batch)
    finally:
        module.CHUNK_TOKENS = old
    assert len(calls) == 2 and nll.shape == (8, 8)
    np.testing.assert_array_equal(nll[2:], np.repeat(nll[1:2], 6, axis=0))


def test_a_learned_table_is_undefined_past_its_end():
    import dataclasses

    config = dataclasses.replace(CONFIG, position="learned")
    score = ModelScore(config, "learned", models.split(models.build(config, seed=0))[1])
    with pytest.raises(Undefined, match="max_length=8"):
        score(np.zeros((1, 10), np.int32))


def test_randomised_positions_are_a_function_of_the_window():
    position = "rope:positions=randomized,max_position=64"
    score = ModelScore(CONFIG, position, models.split(models.build(CONFIG, seed=0))[1])
    tokens = np.random.default_rng(0).integers(0, 11, (4, 9), dtype=np.int32)
    np.testing.assert_allclose(score(tokens)[2:], score(tokens[2:]), atol=1e-5)


@pytest.mark.slow  # `make smoke` is a study, too
def test_study_trains_what_is_missing_and_evaluates(tmp_path):
    words = ["study.py", f"--config={ROOT}/configs/studies/smoke.py", f"--workdir={tmp_path}/s"]
    small = f"--config.data.source=synthetic:copy --config.data.cache_dir={tmp_path}/c --config.train.eval_windows=8"
    words += [
        f"--config.train={small} --config.train.steps=6",
        "--config.evaluate=--lengths=32,64 --stride=2048",
    ]
    status, out, err = command(*words)
    assert status == 0, err
    assert {r["scheme"] for r in records(tmp_path / "s" / "report")} == {"rope", "yarn", "alibi"}
    status, out, err = command(*words)
    assert status == 0 and out.count("nothing to do") == 2
