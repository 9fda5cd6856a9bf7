"""Latent and linear attention: against loops in float64, in every form, and what they refuse."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import models
import posenc
from configs import smoke
from models.attention import attend
from models.latent import Decoupled, LatentAttention
from models.linear import LinearAttention, attend_linear
from training.config import RunConfig
from training.step import init_state, make_train_step

L, T, B, V = 16, 32, 2, 13  # T is twice the training length
D, H = 32, 4
K, C, R = D // H, 10, 6  # a head's content, the latent, the decoupled part
SIZES = {"latent": {"latent_size": C, "rope_size": R}, "linear": {"num_kv_heads": 2}}
SOFTMAX = models.ModelConfig(
    num_layers=1,
    d_model=D,
    num_heads=H,
    num_kv_heads=0,
    attention="softmax",
    latent_size=0,
    rope_size=0,
    query_latent_size=0,
    d_ff=16,
    activation="gelu",
    dropout=0.0,
    dtype="float32",
    remat=False,
    tie_embeddings=True,
    position="rope",
    vocab_size=V,
    train_length=L,
)
TOKENS = jax.random.randint(jax.random.key(1), (B, T), 0, V)
CARRIED = [
    *(("latent", p) for p in ("rope", "nope", "sinusoidal", "alibi", "dynamic_ntk")),
    ("latent", "yarn:factor=4+log_n"),
    ("latent", "yarn:factor=4+window:size=8,sinks=2,streaming=true"),
    *(("linear", p) for p in ("rope", "yarn:factor=4", "nope", "sinusoidal", "learned|rope")),
]


def config(attention, position="rope", **changes):
    changes = {"attention": attention, "position": position, **SIZES.get(attention, {}), **changes}
    return dataclasses.replace(SOFTMAX, **changes)


def normal(*shapes):
    rng = np.random.default_rng(0)
    return [jnp.asarray(rng.normal(size=shape), jnp.float32) for shape in shapes]


def arange(n):
    return jnp.arange(n, dtype=jnp.int32)


class Case:
    """A kind under a scheme: one compiled function of its three forms."""

    def __init__(self, attention, position):
        layers = 1 + position.count("|")
        self.model = models.build(config(attention, position, num_layers=layers), seed=0)
        self.n = min(T, self.model.scheme.max_length or T)
        self.model = self.model.at_length(self.n)
        self.forms = jax.jit(self.forms)
        self.tokens = TOKENS[:, : self.n]
        self.full, self.blocked, self.decoded = self.forms(self.tokens)

    def forms(self, tokens):
        """Logits at once, in blocks of 5 rows, and from a cache: 6 tokens together, then one by one."""
        model, positions = self.model, arange(self.n)
        first, cache = model(tokens[:, :6], positions[:6], cache=model.init_cache(B, self.n))

        def step(cache, now):
            logits, cache = model(now[0][:, None], now[1][None], cache=cache)
            return cache, logits[:, 0]

        _, rest = jax.lax.scan(step, cache, (tokens.T[6:], positions[6:]))
        decoded = jnp.concatenate([first, rest.swapaxes(0, 1)], axis=1)
        return model(tokens), model(tokens, block=5), decoded


QUICK = {("latent", "rope"), ("latent", "alibi"), ("linear", "rope"), ("linear", "learned|rope")}
QUICK |= {("latent", "yarn:factor=4+window:size=8,sinks=2,streaming=true")}


@pytest.fixture(
    scope="module",
    params=[p if p in QUICK else pytest.param(p, marks=pytest.mark.slow) for p in CARRIED],
    ids=lambda p: "-".join(p),
)
def case(request):
    return Case(*request.param)


def test_blocks_and_decoding_give_the_full_forward(case):
    np.testing.assert_allclose(case.blocked, case.full, atol=1e-5)
    np.testing.assert_allclose(case.decoded, case.full, atol=1e-5)


def test_no_token_sees_a_later_one(case):
    middle = case.n // 2
    changed = case.tokens.at[0, middle].set((case.tokens[0, middle] + 1) % V)
    for before, after in zip(
        (case.full, case.blocked, case.decoded), case.forms(changed), strict=True
    ):
        np.testing.assert_array_equal(before[:, :middle], after[:, :middle])
        # Of the rows after it too: it is a key, and not only the query of its own row.
        assert jnp.abs(before - after)[0, middle + 1 :].max() > 1e-3
        np.testing.assert_array_equal(before[1], after[1])


@pytest.mark.parametrize("attention", ["latent", "linear"])
def test_documents_packed_into_one_row_are_as_if_alone(attention):
    model = models.build(config(attention, "sinusoidal+rope"), seed=0)
    lengths = ((3, 9, 20), (7, 1, 24))  # borders differ between the rows, and from any chunk's
    segments = jnp.array([np.repeat((4, 0, 7), n) for n in lengths], jnp.int32)
    positions = jnp.array([np.concatenate([np.arange(m) for m in n]) for n in lengths], jnp.int32)

    @jax.jit
    def run(tokens, positions, segments):
        return (
            model(tokens, positions, segments),
            model(tokens, positions, segments, block=5),
            model(tokens, positions, segments, cache=model.init_cache(B, T))[0],
        )

    for packed in run(TOKENS, positions, segments):
        for row, sizes in enumerate(lengths):
            start = 0
            for n in sizes:
                # Alone, with fillers after it so that every length is the same program.
                row_tokens = jnp.pad(TOKENS[row, start : start + n], (0, T - n))
                alone = run(
                    jnp.tile(row_tokens, (B, 1)),
                    jnp.tile(arange(T), (B, 1)),
                    jnp.zeros((B, T), jnp.int32),
                )[0][0, :n]
                np.testing.assert_allclose(packed[row, start : start + n], alone, atol=1e-5)
                start += n


# Independent transcriptions, in float64 and one pair at a time.


def turned(x, position, frequencies, temperature=1.0):
    half = len(frequencies)
    angle = position * frequencies
    a, b = x[:half], x[half:]
    out = [a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle)]
    return temperature * np.concatenate(out)


def frequencies(position, size):
    """(θ of rope or of yarn:factor=4 at L = 16, temperature). So short a length leaves no pair fast."""
    plain = 10000.0 ** (-np.arange(0, size, 2) / size)
    if position.startswith("rope"):
        return plain, 1.0
    turns = lambda n: size * np.log(L / (2 * np.pi * n)) / (2 * np.log(10000.0))
    low, high = max(np.floor(turns(32)), 0), min(np.ceil(turns(1)), size - 1)
    ramp = np.clip((np.arange(size // 2) - low) / (high - low), 0, 1)
    return plain / 4 * ramp + plain * (1 - ramp), 0.1 * np.log(4) + 1


def rms_normed(x):
    return x / np.sqrt(np.mean(x * x) + 1e-6)


def latent_loops(p, x, position, query_latent):
    theta, temperature = frequencies(position, R)
    n, out = len(x), np.zeros((len(x), H * K))
    c = [rms_normed((h @ p["latent"])[:C]) for h in x]
    shared = [turned((h @ p["latent"])[C:], j, theta, temperature) for j, h in enumerate(x)]
    for i in range(n):
        h = rms_normed(x[i] @ p["query_latent"]) if query_latent else x[i]
        log_n = max(1.0, np.log(i + 1) / np.log(L)) if "log_n" in position else 1.0
        q = log_n * (h @ p["query"]).reshape(H, K + R)
        for head in range(H):
            here = slice(head * K, head * K + K)
            q_rotary = turned(q[head, K:], i, theta, temperature)
            logits = np.array(
                [q[head, :K] @ (c[j] @ p["key"])[here] + q_rotary @ shared[j] for j in range(i + 1)]
            ) / np.sqrt(K + R)
            w = np.exp(logits - logits.max())
            for j in range(i + 1):
                out[i, here] += w[j] / w.sum() * (c[j] @ p["value"])[here]
    return out @ p["out"]


def linear_loops(p, x, position):
    theta, _ = frequencies(position, K)
    phi = lambda a: np.where(a > 0, a + 1, np.exp(np.minimum(a, 0)))
    out = np.zeros((len(x), H * K))
    for i in range(len(x)):
        for head in range(H):
            here, group = slice(head * K, head * K + K), slice(head // 2 * K, head // 2 * K + K)
            q, above, below = phi((x[i] @ p["query"])[here]), np.zeros(K), 1e-6
            for j in range(i + 1):
                k = phi((x[j] @ p["key"])[group])
                v = (x[j] @ p["value"])[group]
                above += turned(q, i, theta) @ turned(k, j, theta) * v
                below += q @ k
            out[i, here] = above / below
    return out @ p["out"]


@pytest.mark.parametrize(
    "attention, query_latent, position",
    [
        ("latent", 0, "rope+log_n"),
        ("latent", 5, "yarn:factor=4"),
        ("linear", 0, "rope"),
        ("linear", 0, "yarn:factor=4"),
    ],
)
def test_against_loops_in_float64(attention, query_latent, position):
    c = config(attention, position, query_latent_size=query_latent)
    module = {"latent": LatentAttention, "linear": LinearAttention}[attention](nnx.Rngs(3), c)
    scheme = posenc.create(position, c.dims)
    n = 21
    x = np.random.default_rng(0).normal(size=(1, n, D))
    state = nnx.to_flat_state(nnx.state(module, nnx.Param))
    p = {path[0]: np.asarray(leaf[...], np.float64) for path, leaf in state}
    loops = latent_loops if attention == "latent" else linear_loops
    expected = loops(p, x[0], position, *([query_latent] if attention == "latent" else []))
    inputs = (jnp.asarray(x, jnp.float32), scheme, arange(n), jnp.zeros((1, n), jnp.int32))
    cache = module.init_cache(c, 1, n)
    full, decoded = jax.jit(
        lambda: (module(*inputs, None, None)[0], module(*inputs, 4, cache)[0])
    )()
    np.testing.assert_allclose(full[0], expected, atol=2e-5)
    np.testing.assert_allclose(decoded[0], expected, atol=2e-5)


def test_absorbed_latent_attention_is_the_naive_one_with_its_gradients():
    c = config("latent", "rope+alibi", num_heads=2, num_kv_heads=0, d_model=16)
    module = LatentAttention(nnx.Rngs(0), c)
    scheme = Decoupled(posenc.create("rope+alibi", c.dims), R)
    q, latent, rotary = normal((B, 7, 2, K + R), (B, 9, C), (B, 9, 1, R))  # fewer queries than keys
    graph, params = nnx.split(module)
    where = (arange(9)[2:], arange(9), None, None, None)

    def run(form, params, *inputs):
        out = getattr(nnx.merge(graph, params), form)(scheme, *inputs, where)
        return jnp.sum(out**3), out

    @jax.jit
    def both(*inputs):
        grads = [
            jax.value_and_grad(functools.partial(run, form), argnums=(0, 1, 2, 3), has_aux=True)
            for form in ("naive", "absorbed")
        ]
        return [grad(params, *inputs) for grad in grads]

    naive, absorbed = both(q, latent, rotary)
    assert naive[0][1].shape == (B, 7, 2, K)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-5), naive, absorbed)
    assert jnp.abs(naive[1][3]).max() > 1e-3  # the rotary part matters


def test_every_hook_of_a_scheme_reaches_the_decoupled_channels():
    """Without content, latent attention's scores are those of softmax attention over R channels."""
    c = config("latent")
    scheme = posenc.create("yarn:factor=4+alibi+log_n+window:size=6,sinks=2,streaming=true", c.dims)
    q, k, v = normal((1, T, H, R), (1, T, 1, R), (1, T, 1, C))

    @jax.jit
    def both():
        turned = scheme.key(k[0], arange(T))[None]
        content = lambda a: jnp.pad(a, ((0, 0), (0, 0), (0, 0), (K, 0)))
        wide = content(q) * ((K + R) / R) ** 0.5
        latent = attend(Decoupled(scheme, R), wide, content(turned), v, arange(T), arange(T))
        return latent, attend(scheme, q, k, v, arange(T), arange(T))

    np.testing.assert_allclose(*both(), atol=1e-5)


def test_chunked_linear_attention_is_the_quadratic_one_with_its_gradients():
    c = config("linear")
    scheme = posenc.create("rope", c.dims)
    n = 22
    q, k, v = normal((n, H, K), (n, 2, K), (n, 2, K))
    segments = jnp.array([3] * 7 + [1] * 2 + [2] * 13, jnp.int32)
    empty = jax.tree.map(lambda a: a[0], LinearAttention.init_cache(c, 1, n))

    def chunked(q, k, v):
        return attend_linear(scheme, 4, q, k, v, arange(n), segments, empty)[0]

    def quadratic(q, k, v):
        k, v = jnp.repeat(k, 2, axis=1), jnp.repeat(v, 2, axis=1)
        seen = (arange(n)[:, None] >= arange(n)[None]) & (segments[:, None] == segments[None])
        q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
        products = lambda q, k: jnp.where(seen[None], jnp.einsum("thk,shk->hts", q, k), 0)
        above = jnp.einsum(
            "hts,shk->thk", products(scheme.query(q, arange(n)), scheme.key(k, arange(n))), v
        )
        return above / (products(q, k).sum(-1).T + 1e-6)[..., None]

    @jax.jit
    def both(*inputs):
        loss = lambda form: lambda *inputs: jnp.sum(form(*inputs) ** 3)
        return [
            (form(*inputs), jax.grad(loss(form), argnums=(0, 1, 2))(*inputs))
            for form in (quadratic, chunked)
        ]

    expected, found = both(q, k, v)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), found, expected)


def test_what_a_cache_holds():
    def numbers(attention, length):
        c = config(attention)
        cache = jax.eval_shape(lambda: models.build(c, 0).init_cache(B, length))[0]
        return {name: a.size for name, a in cache.items()}

    latent = numbers("latent", 50)
    about = {name: latent.pop(name) for name in ("positions", "segments", "used")}
    assert about == {"positions": B * 50, "segments": B * 50, "used": 1}
    assert sum(latent.values()) == B * 50 * (C + R)
    assert numbers("linear", 50) == numbers("linear", 5000)
    assert numbers("linear", 1) == {"state": B * 2 * K * K, "normaliser": B * 2 * K, "segment": B}


def test_a_full_latent_cache_gives_nan_and_not_a_shifted_answer():
    module = models.build(config("latent"), 0).blocks[0].attention
    scheme = posenc.create("nope", module.config.dims)

    @jax.jit
    def twice(x):
        segments = jnp.zeros((B, 2), jnp.int32)
        fits, cache = module(
            x, scheme, arange(2), segments, None, module.init_cache(module.config, B, 3)
        )
        return fits, module(x, scheme, arange(4)[2:], segments, None, cache)[0]

    fits, over = twice(jnp.ones((B, 2, D)))
    assert jnp.isfinite(fits).all() and jnp.isnan(over).all()


@pytest.mark.parametrize("attention", ["latent", "linear"])
def test_a_train_step_moves_every_parameter_and_bfloat16_stays_near(attention):
    given = smoke.get_config("learned+rope")
    given.model.update({"attention": attention, "num_layers": 1})
    if attention == "latent":
        given.model.update({"latent_size": 8, "rope_size": 4, "query_latent_size": 6})
    given.train.update({"batch_size": 4, "length": 8})
    run = RunConfig.from_config(given)
    c = run.model_config(V)
    graph, params = models.split(models.build(c, 0))
    low, _ = models.split(models.build(dataclasses.replace(c, dtype="bfloat16"), 0))
    tokens = TOKENS.reshape(-1)[:36].reshape(4, 9)
    forward = jax.jit(
        lambda params: [models.merge(g, params)(tokens[:, :-1]) for g in (graph, low)]
    )
    exact, rounded = forward(params)
    assert rounded.dtype == jnp.float32 and 1e-5 < jnp.abs(rounded - exact).max() < 0.15
    segments = jnp.array([[0] * 3 + [1] * 5] * 4, jnp.int32)
    positions = jnp.array([[0, 1, 2, 0, 1, 2, 3, 4]] * 4, jnp.int32)
    batch = {"tokens": tokens, "weights": jnp.ones((4, 8))}
    batch |= {"segments": segments, "positions": positions}
    before = jax.tree.map(np.array, params)
    state, metrics = make_train_step(graph, run)(init_state(params, run), batch)
    assert metrics["finite"]
    for name, p in state["params"].items():
        moved = p != before[name]
        assert moved[:5].any() if name.endswith("table") else moved.any(), f"{name} did not move"


@pytest.mark.parametrize(
    "attention, position, why",
    [
        ("linear", "alibi", "alibi: it acts on the logits; use nope, sinusoidal, learned, rope"),
        ("linear", "rope+window:size=4", "window: it acts on what a query sees"),
        ("linear", "rope|t5", "t5: it acts on the logits"),
        ("linear", "cope", "cope: it acts on the logits through whole queries and keys"),
        ("linear", "rope+log_n", "log_n: it scales queries or keys"),
        ("linear", "xpos", "xpos: it scales queries or keys"),
        ("linear", "dynamic_ntk", "dynamic_ntk: its rotation follows the length at hand"),
        ("linear", "pi", "pi: its rotation follows the length at hand"),
        ("linear", "pi:positions=randomized", "pi: its rotation follows"),
        ("linear", "yarn:factor=4,attention_factor=1.5", "yarn: its attention_factor"),
        ("latent", "shaw", "shaw: it acts on the"),
        ("latent", "rope|deberta", "deberta: it acts on the logits through whole queries"),
        ("latent", "transformer_xl", "use a scheme of the embeddings, a rotation, or a bias"),
    ],
)
def test_a_scheme_that_a_kind_cannot_carry_is_refused_by_name(attention, position, why):
    """In training, by its config; in a swap, by the config's replacement."""
    trained = config(attention)
    with pytest.raises(ValueError, match=why) as refused:
        dataclasses.replace(trained, position=position, num_layers=2)
    assert str(refused.value).startswith(f"model.attention={attention} cannot carry ")
    given = smoke.get_config(position)
    given.model.update({"attention": attention})
    if attention == "latent":
        given.model.update(SIZES["latent"])
    with pytest.raises(ValueError, match=why):
        RunConfig.from_config(given)


@pytest.mark.parametrize("position", ["rope:positions=randomized", "p_rope", "ntk:factor=2"])
def test_linear_attention_carries_every_rotation_that_stays(position):
    config("linear", position)


def test_every_scheme_is_carried_or_refused_with_a_reason():
    spelled = {
        "longrope": "longrope:short_factor=1/1/1,long_factor=2/3/4",
        "window": "window:size=4",
    }
    refused = {"latent": set(), "linear": set()}
    for name in posenc.SCHEMES:
        for attention, names in refused.items():
            try:
                config(attention, spelled.get(name, name))
            except ValueError as error:
                if "longrope" in name and attention == "linear":
                    continue  # its lists are of another head size
                assert f"cannot carry {name}" in str(error)
                names.add(name)
    assert refused["latent"] == {"shaw", "transformer_xl", "xlnet", "deberta", "cope"}
    carried = set(posenc.SCHEMES) - refused["linear"] - {"longrope"}
    assert carried == {"nope", "sinusoidal", "learned", "rope", "p_rope"}


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"attention": "flash"}, "model.attention='flash' must be one of softmax, latent, linear"),
        ({"latent_size": 8}, "model.latent_size=8 is read only with model.attention=latent"),
        ({"attention": "linear", "rope_size": 8}, "model.rope_size=8 is read only with"),
        ({"query_latent_size": 8}, "model.query_latent_size=8 is read only with"),
        ({"attention": "latent", "rope_size": 4}, "model.latent_size=0 must be at least 1"),
        ({"attention": "latent", "latent_size": 4}, "model.rope_size=0 must be at least 2"),
        ({**SIZES["latent"], "attention": "latent", "rope_size": 5}, "model.rope_size=5 must be"),
        ({**SIZES["latent"], "attention": "latent", "query_latent_size": -1}, "query_latent_size=-1"),
        ({**SIZES["latent"], "attention": "latent", "num_kv_heads": 2}, "model.num_kv_heads=2"),
    ],
)  # fmt: skip
def test_sizes_that_do_not_fit_the_kind_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SOFTMAX, **changes)
