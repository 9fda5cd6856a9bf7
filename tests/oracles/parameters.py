"""The one place that knows what a scheme calls its parameters."""

import jax

# scheme -> {name in the oracle: attribute of the scheme}
ATTRIBUTES = {
    "learned": {"table": "table"},  # [L, D]
    "t5": {"table": "table"},  # [num_buckets, H]
    "fire": {
        "c": "c",  # []
        "L_mult": "length_multiplier",  # []
        "w1": "hidden_weight",  # [hidden]
        "b1": "hidden_bias",  # [hidden]
        "w2": "output_weight",  # [hidden, H]
        "b2": "output_bias",  # [H]
    },
    "shaw": {"key_table": "key_table", "value_table": "value_table"},  # [2 clip_distance + 1, K]
    "transformer_xl": {"u": "u", "v": "v", "W_R": "W_R"},  # [H, K], [H, K], [D, H, K]
    "xlnet": {"u": "u", "v": "v", "W_R": "W_R"},
    "deberta": {
        "table": "table",  # [2 num_buckets, D]
        "key_projection": "key_projection",  # [D, H, K]
        "query_projection": "query_projection",  # [D, H, K]
    },
    "cope": {"table": "table"},  # [max_positions, K]
}


def read(name: str, scheme: object) -> dict[str, jax.Array]:
    """Float32 arrays under the oracle's names; differentiable in the scheme's parameters."""
    if name == "kerple":
        p, a = scheme.bounded()  # [H] and [H], both positive
        return {"p": p, "a": a}
    named = ATTRIBUTES.get(name, {})
    present = {key: attribute for key, attribute in named.items() if hasattr(scheme, attribute)}
    return {key: getattr(scheme, attribute)[...] for key, attribute in present.items()}


def write(name: str, scheme: object, values: dict[str, jax.Array]) -> None:
    """Replace parameters by the oracle's names, in place."""
    for key, value in values.items():
        parameter = getattr(scheme, ATTRIBUTES[name][key])
        parameter[...] = jax.numpy.asarray(value, parameter[...].dtype).reshape(parameter.shape)
