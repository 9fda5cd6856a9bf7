"""What attention does, against loops in float64, in cases known in advance, and through the command."""

import dataclasses
import json
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from oracles import Setting
from oracles import logits as oracle_logits
from oracles.comparison import parameters_of, plain_name

import models
import posenc
from evaluation import Undefined, diagnostics
from evaluation.angles import unseen_angles
from evaluation.diagnostics import FIRST, WINDOWS, diagnose, standing, windows
from evaluation.model import ModelScore
from models.attention import attention_logits

L, S, T, W, V = 8, 20, 6, 2, 13  # trained at L; windows of S tokens, whose last T rows are read
CONFIG = models.ModelConfig(
    num_layers=1, d_model=32, num_heads=4, num_kv_heads=2, attention="softmax", latent_size=0, rope_size=0,
    query_latent_size=0, d_ff=16, activation="gelu", dropout=0.0, dtype="float32", remat=False,
    tie_embeddings=True, position="rope", vocab_size=V, train_length=L,
)  # fmt: skip
TOKENS = np.random.default_rng(0).integers(0, V, (W, S + 1), dtype=np.int32)


def scored(position="rope", asked=None, change=None, **changes):
    """(the scorer of an initial model, its config), its position parameters away from zero."""
    config = dataclasses.replace(CONFIG, position=position, **changes)
    _, params = models.split(models.build(config, seed=0))
    for number, (name, p) in enumerate(params.items()):
        if "posenc" in name:
            params[name] = p + 0.3 * jax.random.normal(jax.random.key(number), p.shape)
        elif name.endswith(("query.kernel", "key.kernel")):
            params[name] = 3 * p  # so that attention is far from uniform
        if change:
            params[name] = change(name, params[name])
    return ModelScore(config, asked or position, params), config


def measured(position="rope", asked=None, tokens=TOKENS, targets=T, change=None, **changes):
    return diagnose(*scored(position, asked, change, **changes), tokens, targets)


# Position, layers, and the oracle and options of each layer's logits.
ORACLES = [
    ("rope", 2, [("rope", {}), ("rope", {})]),
    ("yarn:factor=4", 1, [("yarn", {"factor": 4.0})]),
    ("alibi", 1, [("alibi", {})]),
    ("t5", 1, [("t5", {})]),
    ("cope", 1, [("cope", {})]),
    ("rope+log_n", 1, [("rope+log_n", {})]),
    ("nope|rope", 2, [("nope", {}), ("rope", {})]),
    ("rope+window:size=5,sinks=2", 1, [("rope", {})]),
]


def loops(logits, sees):
    """Every figure from logits float64 [W, H, T, S], one pair of tokens at a time: lists over the heads."""
    figures = {name: [] for name in diagnostics.FIGURES}
    for h in range(logits.shape[1]):
        sums, counted, largest = dict.fromkeys(figures, 0.0), 0, -math.inf
        for w in range(logits.shape[0]):
            for t in range(T):
                i = S - T + t
                keys = [j for j in range(i + 1) if sees(i, j)]
                total = sum(math.exp(logits[w, h, t, j]) for j in keys)
                entropy = 0.0
                for j in keys:
                    weight = math.exp(logits[w, h, t, j]) / total
                    entropy -= weight * math.log(weight)
                    sums["mean_distance"] += weight * (i - j)
                    sums["beyond"] += weight if i - j >= L else 0.0
                    sums["first"] += weight if j < 4 else 0.0
                    largest = max(largest, logits[w, h, t, j])
                if len(keys) > 1:
                    sums["entropy"] += entropy / math.log(len(keys))
                    counted += 1
        rows = logits.shape[0] * T
        for name in ("mean_distance", "beyond", "first"):
            figures[name].append(sums[name] / rows)
        figures["entropy"].append(sums["entropy"] / counted)
        figures["largest_logit"].append(largest)
    return figures


KIN = {
    "rope",
    "yarn:factor=4",
    "t5",
    "rope+log_n",
    "alibi",
}  # of those that stay: with the slow ones


@pytest.mark.parametrize(
    "position, layers, oracles",
    [pytest.param(*o, id=o[0], marks=[pytest.mark.slow] * (o[0] in KIN)) for o in ORACLES],
)
def test_every_figure_equals_loops_in_float64(position, layers, oracles):
    score, config = scored(position, num_layers=layers)
    found = diagnose(score, config, TOKENS, T)
    pos = np.arange(S)

    @jax.jit
    def walk(params, tokens):
        """What each layer's attention gets."""
        model = models.merge(nnx.split(score.model.at_length(S))[0], params)
        x, given = model.embed(tokens, jnp.arange(S)), []
        for block, names in zip(model.blocks, model.layer_posenc, strict=True):
            given.append(block.attention_norm(x))
            shared = {name: model.posenc[name] for name in names}
            x, _ = block(x, shared, jnp.arange(S), None, None, None, None)
        return given

    inputs = walk(score.params, TOKENS[:, :-1])
    schemes = models.merge(nnx.split(score.model.at_length(S))[0], score.params).layer_schemes()
    sees = lambda i, j: "window" not in position or i - j < 5 or j < 2
    for layer, (spec, options) in enumerate(oracles):
        y = np.asarray(inputs[layer], np.float64)
        kernels = (f"blocks.{layer}.attention.{name}.kernel" for name in ("query", "key"))
        q, k = (
            (y @ np.asarray(score.params[name], np.float64)).reshape(W, S, -1, 8)
            for name in kernels
        )
        k = np.repeat(k, 2, axis=2)  # four heads over two
        s = Setting(D=32, H=4, K=8, L=L, n=S, options=options)
        parameters = parameters_of(plain_name(spec), schemes[layer])
        logits = np.stack(
            [
                oracle_logits(spec, s, parameters, q[w, S - T :], k[w], pos[S - T :], pos)
                for w in range(W)
            ]
        )
        for name, expected in loops(logits, sees).items():
            np.testing.assert_allclose(
                found[layer][name], expected, rtol=2e-4, atol=1e-5, err_msg=f"{position} {name}"
            )
    assert [row["layer"] for row in found] == list(range(layers))
    assert {(row["windows"], row["rows"]) for row in found} == {(W, W * T)}
    assert {(row["length"], row["train_length"]) for row in found} == {(S, L)}


def test_latent_attention_is_read_through_its_own_queries_and_keys():
    """The weights that are read are those whose sums of values the layer returns."""
    sizes = {"attention": "latent", "latent_size": 10, "rope_size": 6, "num_kv_heads": 4}
    score, config = scored("rope+alibi", **sizes)
    pos = jnp.arange(S)

    @jax.jit
    def layer(params, tokens):
        model = models.merge(nnx.split(score.model.at_length(S))[0], params)
        attention, scheme = model.blocks[0].attention, model.layer_schemes()[0]
        x = model.blocks[0].attention_norm(model.embed(tokens, pos))
        met, q, k, v = attention.operands(x, scheme, pos)
        w = jax.nn.softmax(attention_logits(met, q[0], k[0], pos, pos)[0], axis=-1)
        out = attention.out(jnp.einsum("hts,shk->thk", w, v[0]).reshape(S, 32))
        return w, out, attention(x, scheme, pos, None, None, None)[0][0]

    w, out, expected = layer(score.params, TOKENS[:1, :-1])
    np.testing.assert_allclose(out, expected, atol=1e-5)
    (found,) = diagnose(score, config, TOKENS[:1], T)
    far = np.subtract.outer(np.arange(S), np.arange(S))[S - T :] >= L
    beyond = np.where(far, w[:, S - T :], 0).sum(-1).mean(-1)
    np.testing.assert_allclose(found["beyond"], beyond, rtol=1e-4)
    assert min(beyond) > 0.01 and found["unseen_angles"] == 2 / 3  # 6 channels: three pairs


def still(name, p):
    return 0 * p if name.endswith("attention.query.kernel") else p


def test_uniform_attention_is_even_and_halfway_back():
    """Queries of zero: a row that sees n keys attends (n − 1)/2 back, with all the entropy there is."""
    (row,) = measured("nope", change=still)
    n = np.arange(S - T, S) + 1
    far, first = np.mean((n - L) / n), np.mean(FIRST / n)
    expected = {"entropy": 1, "mean_distance": np.mean((n - 1) / 2), "beyond": far, "first": first}
    for name, value in (expected | {"largest_logit": 0}).items():
        np.testing.assert_allclose(row[name], [value] * 4, rtol=1e-5)
    assert row["unseen_angles"] is None


def test_a_window_of_the_training_length_reaches_nothing_beyond():
    (row,) = measured(f"rope+window:size={L}")
    assert row["beyond"] == [0] * 4 and max(row["mean_distance"]) <= L - 1
    assert row["first"] == [0] * 4 and row["unseen_angles"] == 0
    (row,) = measured("rope+window:size=1")  # one key in each row: no entropy to speak of
    assert row["entropy"] == [None] * 4 and row["mean_distance"] == [0] * 4


def test_the_entropy_leaves_out_a_row_that_sees_one_key():
    (row,) = measured("nope", tokens=TOKENS[:, :4], targets=3, change=still)
    np.testing.assert_allclose(row["entropy"], [1] * 4, rtol=1e-6)


def test_what_is_not_finite_is_null():
    (row,) = measured(change=lambda name, p: p * jnp.nan if name.endswith("key.kernel") else p)
    json.dumps(row, allow_nan=False)
    assert row["mean_distance"] == row["largest_logit"] == [None] * 4


def test_linear_attention_and_a_table_past_its_end_are_undefined():
    with pytest.raises(Undefined, match="model.attention=linear has no attention weights"):
        measured(attention="linear")
    with pytest.raises(Undefined, match="max_length=8"):
        measured("learned")


@pytest.mark.parametrize(
    "position",
    [
        pytest.param("dynamic_ntk", marks=pytest.mark.slow),
        "rope:positions=randomized,max_position=64",
    ],
)
def test_chunks_of_windows_and_blocks_of_rows_change_nothing(position, monkeypatch):
    tokens = np.concatenate([TOKENS, TOKENS[::-1, ::-1], TOKENS[:1]])  # 5 windows
    whole = measured(position, tokens=tokens)
    monkeypatch.setattr(diagnostics, "CHUNK_TOKENS", 2 * S)  # the last chunk is not full
    monkeypatch.setattr(diagnostics, "query_rows", lambda model, B, rows, keys: 4)
    assert whole[0]["unseen_angles"] == (0 if "randomized" in position else 0.5)
    for one, other in zip(whole, measured(position, tokens=tokens), strict=True):
        assert one.keys() == other.keys()
        for name in diagnostics.FIGURES:
            np.testing.assert_allclose(other[name], one[name], rtol=1e-4, atol=1e-6, err_msg=name)


def share(trained, asked, length, K=8, train_length=64):
    dims = posenc.Dims(D=32, H=4, K=K, train_length=train_length)
    old, new = posenc.create(trained, dims), posenc.create(asked, dims)
    return unseen_angles(old, new.at_length(length), train_length, length)


@pytest.mark.parametrize(
    "trained, asked, length, expected",
    [
        # K = 8: θ = 1, 0.1, 0.01, 0.001. In 64 tokens they turn by 64, 6.4, 0.64 and 0.064 radians:
        # the first two have been round (2π = 6.283), the others have not.
        ("rope", "rope", 32, 0),
        ("rope", "rope", 64, 0),
        ("rope", "rope", 65, 0.5),
        ("rope", "rope", 128, 0.5),
        ("rope", "pi:factor=2", 128, 0),  # 127/2 = 63.5 is within the last trained token
        ("rope", "pi:factor=2", 129, 0.5),  # 128/2 = 64 is the first token past it
        ("rope", "pi", 1024, 0),
        # base·2^(8/6): θ' = 1, 0.0794, 0.0063, 0.0005; 127·0.0063 = 0.8001 ≥ 0.64; 127·0.0005 < 0.064
        ("rope", "ntk", 128, 0.25),
        ("rope", "ntk:factor=4", 128, 0),  # 127·0.00397 = 0.504 < 0.64
        # turns in 64 tokens: 10.2, 1.02, 0.102, 0.0102; beta 32 and 1, pairs rounded outwards: ramp from
        # index 0 to 2, so pairs 2 and 3 are divided by 2
        ("rope", "yarn:factor=2", 128, 0),
        ("rope", "yarn:factor=2", 256, 0.5),
        ("rope", "p_rope:p=0.5", 1024, 0),  # the slow half does not rotate
        ("p_rope:p=0.5", "rope", 64, 0.5),  # and when it does, after training, all angles are new
        ("nope", "rope", 2, 1),
        ("nope", "rope", 1, 0),  # the angle 0 is no news
        ("rope", "nope", 1024, None),
        ("alibi", "alibi", 1024, None),
        ("rope:rotary_fraction=0.5", "rope:rotary_fraction=0.5", 128, 0.5),  # θ = 1, 0.01
        ("rope:pairing=interleaved", "rope", 64, 1),  # other channels in every pair
        ("rope+log_n", "rope+log_n", 128, 0.5),
        # the mask hides what was never met
        ("rope", "rope+window:size=64", 1024, 0),
        ("rope", "rope+window:size=65", 1024, 0.5),
        ("rope+window:size=32", "rope+window:size=33", 64, 0.75),  # 32·0.1 is no turn either
        ("rope", "rope+window:size=60,sinks=4", 1024, 0.5),  # sinks are as far as they are
        ("rope", "rope+window:size=60,sinks=4,streaming=true", 1024, 0),  # or are said to be near
        ("xpos", "xpos", 128, 0.5),
    ],
)
def test_unseen_angles_by_hand(trained, asked, length, expected):
    assert share(trained, asked, length) == expected


def test_rounding_hides_no_pair():
    """150·(θ/3) is 50·θ, the first angle past training, and for θ = 0.001 a little less in float64."""
    assert 150 * (0.001 / 3) < 50 * 0.001
    assert share("rope", "pi:factor=3", 151, train_length=50) == 0.75


def test_a_fine_tune_counts_from_what_it_was_tuned_at():
    """Tuned at 256 under pi:factor=4, pairs know 256·θ/4 = 64·θ, which 257 tokens leave."""
    tuned = "pi:factor=4,original_length=64"
    assert share(tuned, tuned, 256, train_length=256) == 0
    assert share(tuned, tuned, 257, train_length=256) == 0.5


def test_unseen_angles_of_a_model_are_those_of_each_layer():
    rows = measured("rope|nope", num_layers=2)
    assert [row["unseen_angles"] for row in rows] == [0.75, None]  # 8·0.1 < 2π
    rows = measured("rope|nope", asked="pi:factor=4|nope", num_layers=2)
    assert [row["unseen_angles"] for row in rows] == [0, None]


def test_randomised_positions_have_been_as_far_as_they_are_drawn_from():
    drawn = "rope:positions=randomized,max_position=100"
    (row,) = measured("rope", asked=drawn)  # trained at 0 … 7, read at up to 99
    assert row["unseen_angles"] == 0.75


def test_windows_end_with_the_same_tokens_at_every_length():
    documents = [np.arange(1000 * d, 1000 * d + n) for d, n in enumerate((400, 30, 900))]
    found = windows(documents, [8, 64, 5000], stride=16, targets=8)
    assert set(found) == {8, 64}
    assert found[64].shape == (WINDOWS, 65) and found[8].shape == (WINDOWS, 9)
    np.testing.assert_array_equal(found[64][:, -9:], found[8])
    assert found[64][0, -1] == 64 and found[64][-1, -1] == 2896  # the first block and the last
    assert len(set(found[8][:, -1])) == WINDOWS and {0, 2} == set(found[8][:, -1] // 1000)
    assert len(windows(documents, [64], stride=None, targets=8)[64]) == WINDOWS
    assert len(windows([np.arange(100)], [64], stride=None, targets=8)[64]) == 1


def test_rows_stand_with_their_record():
    rows = [{"run": "a", "scheme": "rope", "length": n, "layer": 0} for n in (8, 16)]
    record = {"run": "a", "scheme": "rope", "length": 8, "protocol": "fixed"}
    assert standing(rows, [record]) == rows[:1]
    assert standing(rows, [record | {"protocol": "disjoint"}]) == []
