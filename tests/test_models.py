"""The decoder: one attention function in three uses, and what a position scheme may not disturb."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import models
import posenc
from models.attention import attend

L, T, B, V = 16, 32, 2, 13  # T is twice the training length
CONFIG = models.ModelConfig(
    num_layers=1,
    d_model=32,
    num_heads=4,
    num_kv_heads=2,
    attention="softmax",
    latent_size=0,
    rope_size=0,
    query_latent_size=0,
    d_ff=48,
    activation="swiglu",
    dropout=0.0,
    dtype="float32",
    remat=False,
    tie_embeddings=True,
    position="rope",
    vocab_size=V,
    train_length=L,
)
SPELLED = {
    "longrope": "longrope:short_factor=1/1.1/1.2/1.5,long_factor=2/3/4/6,factor=4",
    "window": "rope+window:size=6,sinks=2,streaming=true",
}
SPECS = [SPELLED.get(name, name) for name in posenc.SCHEMES] + [
    "rope:rotary_fraction=0.5,pairing=interleaved",
    "learned:extend=interpolate",
    "yarn:factor=4+log_n",
    "rope:positions=randomized",
]
TOKENS = jax.random.randint(jax.random.key(1), (B, T), 0, V)


def make(position="rope", seed=0, **changes):
    config = dataclasses.replace(CONFIG, position=position, **changes)
    model = models.build(config, seed)
    graph, params = models.split(model)
    # Position parameters may start at zero, where they would act nowhere and test nothing.
    noise = {
        name: p + 0.3 * jax.random.normal(jax.random.key(i), p.shape) if "posenc" in name else p
        for i, (name, p) in enumerate(params.items())
    }
    return models.merge(graph, noise)


class Case:
    """A scheme in the model at twice the training length, or as far as its table reaches."""

    def __init__(self, position):
        model = make(position)
        self.n = min(T, model.scheme.max_length or T)
        self.model = model.at_length(self.n)
        self.tokens = TOKENS[:, : self.n]
        self.graph, self.params = models.split(self.model)
        self.gradients = self.differentiated()
        (_, self.logits), self.gradient = self.gradients(self.tokens, None)

    def differentiated(self):
        """((loss, logits), gradient) of tokens in blocks, as a function that is yet to be compiled."""

        def gradients(tokens, block):
            def loss(params):
                logits = models.merge(self.graph, params)(tokens, block=block)
                return jnp.mean(jax.nn.log_softmax(logits)[..., 0]), logits

            return jax.value_and_grad(loss, has_aux=True)(self.params)

        return jax.jit(gradients, static_argnums=1)


@pytest.fixture(scope="module")
def case(request):
    return Case(request.param)


# Rope's code with other frequencies, and the kin of others that stay: with the slow ones.
KIN = {
    "dynamic_pi",
    "ntk",
    "ntk_by_parts",
    "llama3",
    "dynamic_yarn",
    "p_rope",
    "pi",
    "xlnet",
    "yarn",
}
KIN |= {SPELLED["longrope"], "learned:extend=interpolate", "yarn:factor=4+log_n", "log_n"}
KIN |= {"sandwich", "kerple", "deberta", "rope:rotary_fraction=0.5,pairing=interleaved"}
SPANNED = {"rope", "fire", "shaw", "cope"}
BLOCKS = {"rope", "alibi", "t5", "fire", "shaw", "transformer_xl", "cope", "dynamic_ntk"}
every_scheme = pytest.mark.parametrize(
    "case",
    [pytest.param(s, marks=pytest.mark.slow) if s in KIN else s for s in SPECS],
    indirect=True,
)


# One of each kind: tests/test_long_evaluation.py compares blocks with the whole forward for others.
@pytest.mark.parametrize(
    "case",
    [s if s in BLOCKS else pytest.param(s, marks=pytest.mark.slow) for s in SPECS],
    indirect=True,
)
def test_blocks_of_queries_give_the_full_forward_and_its_gradient(case, monkeypatch):
    monkeypatch.setattr("models.attention.SPANS", ((8, 16),))  # two spans, each of two blocks
    same_as_whole(case, *case.gradients(case.tokens, 8))


@pytest.mark.parametrize(
    "case",
    [s if s in SPANNED else pytest.param(s, marks=pytest.mark.slow) for s in SPECS],
    indirect=True,
)
def test_spans_of_queries_give_the_full_forward_and_its_gradient(case, monkeypatch):
    monkeypatch.setattr("models.attention.WHOLE_SPANS", ((4, 11),))  # two spans, of 16 rows each
    assert case.n // 11 > 1 or case.model.scheme.max_length
    again = case.differentiated()
    same_as_whole(case, *again(case.tokens, None))


def same_as_whole(case, value, gradient):
    np.testing.assert_allclose(value[1], case.logits, atol=1e-4)
    for name, full in case.gradient.items():
        scale = float(jnp.abs(full).max())
        assert np.isfinite(scale)
        assert "posenc" not in name or scale > 0, f"no gradient reaches {name}"
        np.testing.assert_allclose(gradient[name], full, atol=1e-4 * max(scale, 1), err_msg=name)


def test_two_layers_decode_as_they_train():
    model = make("rope+log_n", num_layers=2)
    full = jax.jit(lambda tokens: model(tokens))(TOKENS)
    cache, out = model.init_cache(B, T), []
    step = jax.jit(lambda tokens, at, cache: model(tokens, at, cache=cache))
    for i in range(0, T, 8):
        at = jnp.arange(i, i + 8, dtype=jnp.int32)
        logits, cache = step(TOKENS[:, i : i + 8], at, cache)
        out.append(logits)
    np.testing.assert_allclose(jnp.concatenate(out, axis=1), full, atol=1e-4)


@pytest.mark.parametrize("position", ["t5", "rope"])
def test_a_last_block_may_be_shorter(position):
    model = make(position)
    run = jax.jit(lambda tokens, block: model(tokens, block=block), static_argnums=1)
    np.testing.assert_allclose(run(TOKENS, 5), run(TOKENS, None), atol=1e-5)


@every_scheme
def test_decoding_with_a_cache_gives_the_full_forward(case):
    positions = case.model.scheme.positions(case.n)
    cache, out = case.model.init_cache(B, case.n), []
    step = jax.jit(lambda tokens, at, cache: case.model(tokens, at, cache=cache))
    for i in range(case.n):
        logits, cache = step(case.tokens[:, i : i + 1], positions[i : i + 1], cache)
        out.append(logits)
    np.testing.assert_allclose(jnp.concatenate(out, axis=1), case.logits, atol=1e-4)


@every_scheme
def test_no_token_sees_a_later_one(case):
    middle = case.n // 2
    changed = case.tokens.at[0, middle].set((case.tokens[0, middle] + 1) % V)
    (_, after), _ = case.gradients(changed, None)
    np.testing.assert_array_equal(case.logits[:, :middle], after[:, :middle])
    assert jnp.abs(case.logits - after)[0, middle:].max() > 1e-3


@every_scheme
def test_left_padded_row_equals_the_row_alone(case):
    positions = case.model.scheme.positions(case.n)
    padded = jnp.pad(case.tokens[:, :-3], ((0, 0), (3, 0)))
    places = jnp.tile(jnp.pad(positions[:-3], (3, 0)), (B, 1))
    segments = jnp.tile(jnp.array([1] * 3 + [0] * (case.n - 3), jnp.int32), (B, 1))
    alone = jax.jit(lambda *row: case.model(*row))(padded, places, segments)[:, 3:]
    np.testing.assert_allclose(alone, case.logits[:, :-3], atol=1e-4)


@pytest.mark.parametrize("position", SPECS)
def test_every_other_weight_is_the_same_under_every_scheme(position):
    base = models.split(models.build(CONFIG, seed=3))[1]
    other = models.split(models.build(dataclasses.replace(CONFIG, position=position), seed=3))[1]
    assert base.keys() == {name for name in other if "posenc" not in name}
    for name in base:
        np.testing.assert_array_equal(base[name], other[name])


@pytest.mark.parametrize("position", ["dynamic_ntk", "sinusoidal"])
def test_lengths_in_any_order_leave_nothing_behind(position):
    """One object used at many lengths gives what a fresh one gives at each: there are no tables to go stale."""

    @functools.partial(jax.jit, static_argnums=0)
    def run(graph, params, tokens):
        return models.merge(graph, params)(tokens)

    reused = make(position)
    for n in (16, 32, 15, 16):
        tokens = jnp.arange(n)[None] % V
        fresh = run(*models.split(make(position).at_length(n)), tokens)
        np.testing.assert_array_equal(run(*models.split(reused.at_length(n)), tokens), fresh)


def test_one_row_against_its_keys_sees_them_all():
    """The causal mask comes from positions: it cannot be anchored at the wrong corner."""
    scheme = posenc.create("nope", posenc.Dims(D=8, H=1, K=8, train_length=4))
    q, k = jnp.zeros((1, 2, 1, 8)), jnp.zeros((1, 4, 1, 8))
    v = jnp.eye(4, 8)[
        None, :, None
    ]  # key j's value is the unit vector j: the output is the weights
    rows = attend(scheme, q, k, v, jnp.array([2, 3]), jnp.arange(4))[0, :, 0, :4]
    np.testing.assert_allclose(rows, [[1 / 3] * 3 + [0], [1 / 4] * 4], atol=1e-6)


def test_grouped_heads_are_repeated_key_and_value_heads():
    grouped, plain = make(num_kv_heads=2), make(num_kv_heads=4)
    _, few = models.split(grouped)
    graph, _ = models.split(plain)

    def repeat(name, p):
        if name.endswith(("key.kernel", "value.kernel")):
            return jnp.repeat(p.reshape(32, 2, 8), 2, axis=1).reshape(32, 32)
        return p

    many = models.merge(graph, {name: repeat(name, p) for name, p in few.items()})
    np.testing.assert_allclose(many(TOKENS), grouped(TOKENS), atol=1e-5)


@pytest.mark.parametrize("position", ["rope", "alibi", "learned:extend=interpolate"])
def test_bfloat16_keeps_float32_parameters_and_logits(position):
    exact, low = make(position), make(position, dtype="bfloat16")
    assert {p.dtype for p in models.split(low)[1].values()} == {jnp.dtype("float32")}
    logits = low(TOKENS[:, :L])
    assert logits.dtype == jnp.float32
    assert 1e-5 < jnp.abs(logits - exact(TOKENS[:, :L])).max() < 0.15


def test_bfloat16_activations_do_not_round_far_positions_together():
    """256 and 257 are one number in bfloat16: as positions they must stay two."""
    model = make("rope", dtype="bfloat16")
    near = model(TOKENS[:, :8], jnp.arange(8, dtype=jnp.int32) * 2 + 1024)
    far = model(TOKENS[:, :8], jnp.arange(8, dtype=jnp.int32) * 2)
    np.testing.assert_allclose(near, far, atol=0.1)
    other = model(TOKENS[:, :8], jnp.arange(8, dtype=jnp.int32) + 1024)
    assert jnp.abs(other - near).max() > 0.1


def test_rematerialisation_changes_no_gradient():
    def gradient(remat):
        graph, params = models.split(make("learned", remat=remat, dropout=0.2, num_layers=1))
        key = jax.random.key(0)
        loss = lambda p: models.merge(graph, p)(TOKENS[:, :L], key=key)[..., 0].mean()
        return jax.jit(jax.grad(loss))(params)

    kept, again = gradient(False), gradient(True)
    for name in kept:
        np.testing.assert_allclose(again[name], kept[name], atol=1e-6, err_msg=name)


def test_dropout_differs_between_keys_and_layers(monkeypatch):
    model = make(dropout=0.5)
    run = jax.jit(lambda key: model(TOKENS, key=key))
    first, again, other = (run(jax.random.key(k)) for k in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert jnp.abs(first - other).max() > 0.1
    keys = []
    monkeypatch.setattr(
        models.transformer, "dropout", lambda x, rate, key: keys.append(str(key)) or x
    )
    model(TOKENS[:, :2], key=jax.random.key(0))
    assert len(keys) == len(set(keys)) == 1 + 2 * CONFIG.num_layers


def test_segments_hide_the_other_documents():
    model = make()
    segments = jnp.array([[0] * 10 + [1] * 22] * B, jnp.int32)
    positions = (
        jnp.concatenate([jnp.arange(10), jnp.arange(22)])[None].repeat(B, 0).astype(jnp.int32)
    )
    changed = TOKENS.at[:, 3].set((TOKENS[:, 3] + 1) % V)
    one, two = (model(t, positions, segments) for t in (TOKENS, changed))
    np.testing.assert_array_equal(one[:, 10:], two[:, 10:])
    np.testing.assert_allclose(one[:, 10:], model(TOKENS[:, 10:]), atol=1e-5)


def test_a_full_cache_gives_nan_and_not_a_shifted_answer():
    model = make()
    logits, cache = model(
        TOKENS[:, :4], jnp.arange(4, dtype=jnp.int32), cache=model.init_cache(B, 4)
    )
    assert jnp.isfinite(logits).all()
    logits, _ = model(TOKENS[:, :1], jnp.array([4], jnp.int32), cache=cache)
    assert jnp.isnan(logits).all()
    with pytest.raises(ValueError, match="positions of the new tokens"):
        model(TOKENS[:, :1], cache=cache)


def test_learned_table_is_never_read_past_its_end():
    model = make("learned")
    with pytest.raises(posenc.LengthError, match="16"):
        model.at_length(17)
    with pytest.raises(posenc.LengthError, match="position 16"):
        model.posenc["learned"].embed(jnp.zeros((1, 32)), jnp.array([16], jnp.int32))
    # Traced positions cannot be refused: they give NaN, never a copy of the last row.
    assert jnp.isnan(jax.jit(lambda t: model(t))(TOKENS[:1, : L + 1])).all()
    assert jnp.isfinite(jax.jit(lambda t: model(t))(TOKENS[:1, :L])).all()


def test_untied_head_and_gelu():
    graph, params = models.split(make(tie_embeddings=False, activation="gelu"))
    assert "head.kernel" in params and "blocks.0.feed_forward.gate.kernel" not in params
    assert jnp.isfinite(models.merge(graph, params)(TOKENS)).all()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"d_model": 30}, "model.d_model=30 must be a multiple of model.num_heads=4"),
        ({"num_kv_heads": 3}, "model.num_kv_heads=3 must divide"),
        ({"activation": "relu"}, "model.activation='relu'"),
        ({"dropout": 1.0}, "model.dropout=1.0"),
        ({"dtype": "float16"}, "model.dtype='float16'"),
        ({"num_layers": 0}, "model.num_layers=0"),
        ({"num_layers": 4097}, "model.num_layers=4097 must be at least 1 and at most 4,096"),
        ({"d_model": 10**12}, "model.d_model=1000000000000 must be at least 1 and at most"),
        ({"position": "rope", "d_model": 36, "num_heads": 4, "num_kv_heads": 4}, "rotary_fraction"),
        (
            {"position": "sinusoidal", "d_model": 33, "num_heads": 1, "num_kv_heads": 1},
            "model.d_model=33",
        ),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        models.build(dataclasses.replace(CONFIG, **changes), seed=0)


def test_split_and_merge_are_inverse():
    model = make("learned")
    graph, params = models.split(model)
    again, same = models.split(models.merge(graph, params))
    assert again == graph and same.keys() == params.keys()
    assert "posenc.learned.table" in params and "blocks.0.attention.out.kernel" in params
    assert all(isinstance(p, jax.Array) for p in params.values())
    assert nnx.state(model, nnx.Param) is not None
