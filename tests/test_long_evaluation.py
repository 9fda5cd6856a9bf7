"""Long evaluation: no pair of tokens worked on for nothing, one program for many schemes, and no
length started that the device has not the memory for.
"""

import dataclasses
import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from test_eval_extrapolation import CONFIG
from test_models import SPELLED

import evaluation
import models
import posenc
from evaluation import programs
from evaluation.model import ModelScore, last_nll, token_nll
from models import attention

DIMS = posenc.Dims(D=16, H=4, K=8, G=2, train_length=8)
T = 24


def operands(S, rows=T):
    """q of the last `rows` of S tokens, k and v of all; two sequences."""
    keys = jax.random.split(jax.random.key(0), 3)
    q = jax.random.normal(keys[0], (2, rows, 4, 8))
    return q, *(jax.random.normal(key, (2, S, 2, 8)) for key in keys[1:])


@pytest.fixture
def keys_met(monkeypatch):
    """Spans of 6 rows; the keys that the blocks of each span are compared with."""
    met, rows = [], attention.attend_rows
    monkeypatch.setattr("models.attention.SPANS", ((8, 6),))

    def seen(scheme, q, k, *rest):
        if met[-1:] != [k.shape[0]]:  # a block is traced for its shapes, for the loop and as a rest
            met.append(k.shape[0])
        return rows(scheme, q, k, *rest)

    monkeypatch.setattr("models.attention.attend_rows", seen)
    return met


@pytest.mark.parametrize("name", ["rope", "cope", "rope+window:size=5,sinks=2"])
def test_early_queries_are_not_compared_with_late_keys(name, keys_met):
    scheme = posenc.create(name, DIMS, nnx.Rngs(0))
    if name == "cope":  # whose table starts at zero
        scheme.table[...] = jax.random.normal(jax.random.key(1), scheme.table.shape)
    pos = jnp.arange(T, dtype=jnp.int32)
    whole = attention.attend(scheme, *operands(T), pos, pos)
    assert keys_met == [T]
    blocks = attention.attend(scheme, *operands(T), pos, pos, block=2)
    np.testing.assert_allclose(blocks, whole, atol=1e-5)
    assert keys_met[1:] == [6, 12, 18, 24]  # 62.5 % of the pairs
    shorter = attention.attend(scheme, *operands(T), pos, pos, block=5)
    np.testing.assert_allclose(shorter, whole, atol=1e-5)
    assert keys_met[5:] == [5, 10, 15, 24]  # the last block is of 4 rows


def test_rows_behind_a_cache_meet_what_stands_before_them(keys_met):
    scheme = posenc.create("alibi", DIMS, nnx.Rngs(0))
    S, pos = 40, jnp.arange(40, dtype=jnp.int32)
    args = (*operands(S), pos[S - T :], pos)
    whole = attention.attend(scheme, *args)
    np.testing.assert_allclose(attention.attend(scheme, *args, block=3), whole, atol=1e-5)
    assert keys_met[1:] == [22, 28, 34, 40]


def test_documents_in_one_row_stay_apart_in_spans(keys_met):
    scheme = posenc.create("rope", DIMS)
    segments = jnp.asarray([[0] * 10 + [1] * 14, [0] * 3 + [1] * 20 + [2]], jnp.int32)
    starts = jnp.asarray([[0] * 10 + [10] * 14, [0] * 3 + [3] * 20 + [23]], jnp.int32)
    pos = jnp.arange(T, dtype=jnp.int32)[None] - starts
    args = (*operands(T), pos, pos, segments, segments)
    whole = attention.attend(scheme, *args)
    np.testing.assert_allclose(attention.attend(scheme, *args, block=2), whole, atol=1e-5)
    assert keys_met[1:] == [6, 12, 18, 24]


def rotations():
    return {
        name: posenc.create(
            {"longrope": "longrope:short_factor=1/2/3/4,long_factor=2/3/4/5"}.get(name, name),
            posenc.Dims(D=16, H=2, K=8, train_length=32),
            nnx.Rngs(0),
        )
        for name in posenc.SCHEMES
        if name != "window"
    }


def test_which_schemes_only_rotate():
    found = {name for name, scheme in rotations().items() if posenc.is_rotation(scheme)}
    assert found == set(posenc.SCHEMES["rope"].swaps) - {"nope"}
    assert not posenc.is_rotation(posenc.create("rope+log_n", DIMS))

    class Louder(posenc.SCHEMES["rope"]):
        def query(self, q, pos):
            return 2 * super().query(q, pos)

    assert not posenc.is_rotation(Louder(DIMS))


def test_a_rotation_of_arrays_is_the_scheme_bit_for_bit():
    x = jax.random.normal(jax.random.key(0), (50, 2, 8))
    pos = jnp.arange(50, dtype=jnp.int32) * 1_000_003  # far out, where every bit of a step shows
    spelled = ["rope:pairing=interleaved", "rope:rotary_fraction=0.5", "yarn:factor=8"]
    schemes = [posenc.create(s, DIMS) for s in spelled]
    schemes += [s for s in rotations().values() if posenc.is_rotation(s)]
    for scheme in (s.at_length(n) for s in schemes for n in (16, 64)):
        rotation = posenc.Rotation(scheme)
        np.testing.assert_array_equal(rotation.query(x, pos), scheme.query(x, pos))
        np.testing.assert_array_equal(rotation.key(x, pos), scheme.key(x, pos))


def parameters(config, seed=0):
    return models.split(models.build(config, seed))[1]


def scorer(position, seed=0, **changes):
    config = dataclasses.replace(CONFIG, position=position, **changes)
    return ModelScore(config, position, parameters(config, seed))


@pytest.fixture
def compilations(caplog):
    """How often a scoring function has been compiled so far, by JAX's own log."""
    programs.compiled.cache_clear()
    with jax.log_compiles(), caplog.at_level(logging.WARNING):

        def count():
            return sum(
                "Finished XLA compilation" in message and "token_nll" in message
                for message in caplog.messages
            )

        yield count


def test_one_compilation_for_each_length_and_kind_of_scheme(compilations):
    tokens = np.random.default_rng(0).integers(0, 11, (1, 25), dtype=np.int32)

    def read(*args, lengths=(8, 16, 24), **changes):
        score = scorer(*args, **changes)
        return [score(tokens[:, : n + 1]) for n in lengths]

    found = [read(s) for s in ("rope", "pi", "ntk", "yarn")]
    assert compilations() == 3
    others = ("yarn:factor=8,beta_fast=16,beta_slow=0.5", "rope:base=500", "p_rope")
    found += [read(s) for s in others]
    found.append(read("rope", seed=1))
    found.append(read("rope", train_length=4))
    assert compilations() == 3
    far = [round(float(nll[-1].mean()), 6) for nll in found]
    assert len(set(far)) == len(far) - 1  # all differ but the last, which is rope again
    for kind, position in enumerate(("nope", "rope:pairing=interleaved", "rope+log_n"), 1):
        read(position, lengths=(8,))
        assert compilations() == 3 + kind
    read("pi:factor=3+log_n", lengths=(8,))  # log_n of the same training length
    assert compilations() == 6


@pytest.mark.parametrize(
    "position",
    ["yarn:factor=4+log_n", "rope:base=500|rope:base=9000", "rope|nope"],
)
def test_numbers_as_arguments_change_no_loss(position):
    score = scorer(position, num_layers=2)
    tokens = np.random.default_rng(0).integers(0, 11, (2, 21), dtype=np.int32)
    graph = nnx.split(score.model.at_length(20))[0]
    plain = jax.jit(lambda params, tokens: token_nll(models.merge(graph, params), tokens))
    expected = plain(score.params, tokens)
    np.testing.assert_allclose(score(tokens), expected, atol=1e-5)


def test_the_vocabulary_is_worked_through_in_blocks(monkeypatch):
    score = scorer("rope")
    tokens = np.random.default_rng(0).integers(0, 11, (2, 38), dtype=np.int32)
    whole = token_nll(models.build(score.model.config, 0), tokens)
    monkeypatch.setattr("evaluation.model.BLOCK_BYTES", 16 * 4 * 11)  # 16 tokens of the 74
    blocks = token_nll(models.build(score.model.config, 0), tokens)
    np.testing.assert_allclose(blocks, whole, atol=1e-5)
    made = jax.make_jaxpr(lambda t: token_nll(models.build(score.model.config, 0), t))(tokens)
    assert "f32[16,11]" in str(made) and "f32[74,11]" not in str(made)


LATENT = {"attention": "latent", "latent_size": 12, "rope_size": 8}


@pytest.mark.parametrize(
    ("position", "changes"),
    [
        ("rope|nope", {"num_layers": 2}),
        ("rope:positions=randomized,max_position=64", {}),
        ("rope+window:size=9,sinks=2,streaming=true", {"num_layers": 2}),
        ("cope", {}),
        ("learned:extend=interpolate", {"remat": True}),
        ("rope", LATENT),
        ("rope", {"attention": "linear", "num_layers": 2}),
    ],
)
def test_the_last_losses_alone_are_those_of_all(position, changes, monkeypatch):
    score = scorer(position, **changes)
    tokens = np.random.default_rng(0).integers(0, 11, (3, 41), dtype=np.int32)
    whole = score(tokens)
    np.testing.assert_allclose(score.last(tokens, 7), whole[:, -7:], atol=1e-5)
    monkeypatch.setattr("evaluation.model.BLOCK_BYTES", 2**10)  # more rows than a block has
    blocks = ModelScore(score.model.config, score.model.config.position, score.params)
    np.testing.assert_allclose(blocks.last(tokens, 21), whole[:, -21:], atol=1e-5)


def test_the_last_losses_cost_less_work():
    """Less than the last of two layers and all of the output matrix would be, by XLA's own count."""
    score = scorer("rope", num_layers=2)
    tokens = np.zeros((1, 257), np.int32)
    graph, numbers = programs.general(score.model.at_length(256))
    args = (graph, score.params | numbers, tokens)
    every, few = (
        programs.measured(f, *args)[0].cost_analysis()["flops"] for f in (token_nll, last_nll(8))
    )
    assert few < 0.7 * every


DOCUMENT = [np.arange(200, dtype=np.int32) % 11]


@pytest.mark.parametrize("protocol", ["fixed", "recurrent"])
def test_a_length_that_does_not_fit_is_not_run(protocol, monkeypatch):
    """The limit is stubbed between what the shorter and what the longest length need."""
    needs, measured = [], programs.measured

    def noted(*args):
        needs.append(measured(*args)[1])
        return measured(*args)

    monkeypatch.setattr(programs, "measured", noted)
    lengths, options = [8, 32, 128], {"targets": 8, "train_length": 8, "batch_size": 1}
    plain = evaluation.sweep(scorer("rope"), DOCUMENT, lengths, protocol, **options)
    assert [r["status"] for r in plain[:3]] == ["ok"] * 3 and max(needs) == needs[2]
    limit = needs[2] - 1
    monkeypatch.setattr(programs, "device_bytes", lambda: limit)
    found = evaluation.sweep(scorer("rope"), DOCUMENT, lengths, protocol, **options)
    assert [r["status"] for r in found[:3]] == ["ok", "ok", "out_of_memory"]
    assert [r["nll"] for r in found[:2]] == [r["nll"] for r in plain[:2]]
    gib = f"{needs[2] / 2**30:.1f} GiB; the device has {limit / 2**30:.1f} GiB"
    assert found[2]["reason"] == f"length 128 needs {gib}"


def test_what_a_device_holds(monkeypatch, tmp_path):
    class Device:
        platform = "gpu"

        def memory_stats(self):
            return {"bytes_limit": 123}

    monkeypatch.setattr(jax, "local_devices", lambda: [Device()])
    assert programs.device_bytes() == 123
    monkeypatch.setattr(Device, "memory_stats", lambda self: None)
    assert programs.device_bytes() is None
    monkeypatch.setattr(Device, "platform", "cpu")
    monkeypatch.setattr(programs, "CONTAINER_LIMITS", (str(tmp_path / "none"),))
    machine = programs.device_bytes()
    assert machine > 2**28
    (tmp_path / "v2").write_text("max\n")
    (tmp_path / "v1").write_text("1048576\n")
    monkeypatch.setattr(programs, "CONTAINER_LIMITS", (str(tmp_path / "v2"),))
    assert programs.device_bytes() == machine
    monkeypatch.setattr(programs, "CONTAINER_LIMITS", (str(tmp_path / "v2"), str(tmp_path / "v1")))
    assert programs.device_bytes() == 1048576


QUICK = ("fire",)


@pytest.mark.parametrize(
    "name",
    [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in posenc.SCHEMES],
)
def test_memory_grows_with_the_length_and_not_with_its_square(name, monkeypatch):
    monkeypatch.setattr("models.attention.SPANS", ((1, 512),))  # compile sooner
    # so small that a block has as many rows at both lengths
    monkeypatch.setattr("evaluation.model.BLOCK_BYTES", 2**18)
    spelled = {
        **SPELLED,
        "learned": "learned:extend=interpolate",
        "longrope": "longrope:short_factor=1/1/1/1,long_factor=2/2/2/2",
    }
    score = scorer(spelled.get(name, name))
    needs = []
    for n in (1024, 4096):
        graph, numbers = programs.general(score.model.at_length(n))
        tokens = jax.ShapeDtypeStruct((1, n + 1), np.int32)
        needs.append(programs.measured(token_nll, graph, score.params | numbers, tokens)[1])
    assert needs[1] < 4.5 * needs[0]


def test_a_long_sweep_keeps_the_programs_of_its_last_lengths_alone(monkeypatch):
    monkeypatch.setattr(programs, "KEPT", 2)
    score = scorer("rope")
    for length in (4, 5, 6):
        score.at(length, 1)
    assert [length for _, length, _ in score.compiled] == [5, 6]
