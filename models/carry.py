"""Which hooks of a position scheme each attention kind has a place for, and the refusal of the others."""

from flax import nnx

from posenc import Composition, Dims, Scheme, create_parts, overrides, parse_pattern
from posenc.rope import RoPE

# model.attention -> the hooks it calls.
CARRIED = {
    "softmax": ("embed", "query", "key", "bias", "content", "value", "visible"),
    "latent": ("embed", "query", "key", "bias", "visible"),
    "linear": ("embed", "query", "key"),
}
ACTS = {
    "bias": "it acts on the logits",
    "content": "it acts on the logits through whole queries and keys",
    "value": "it acts on the values",
    "visible": "it acts on what a query sees",
}
INSTEAD = {
    "latent": "use a scheme of the embeddings, a rotation, or a bias of the distance alone",
    "linear": "use nope, sinusoidal, learned, rope, p_rope, or another rotation with a fixed factor",
}


def parts_of(scheme: Scheme) -> list[Scheme]:
    """The parts of a composition, or the one scheme."""
    return list(scheme.parts.values()) if isinstance(scheme, Composition) else [scheme]


def check_carried(attention: str, position: str, dims: Dims) -> None:
    """ValueError names the part of `position` that this kind of attention cannot carry, and why."""
    if attention == "softmax":
        return
    for parts in parse_pattern(position):
        schemes = create_parts(parts, dims, nnx.Rngs(0))
        for name, options in parts:
            why = obstacle(attention, name, options, schemes[name])
            if why:
                raise ValueError(
                    f"model.attention={attention} cannot carry {name}: {why}; {INSTEAD[attention]}"
                )


def obstacle(attention: str, name: str, options: dict, scheme: Scheme) -> str | None:
    """Why the kind cannot carry this scheme, or None where it can."""
    for hook, why in ACTS.items():
        if hook not in CARRIED[attention] and overrides(scheme, hook):
            return why
    if attention != "linear" or not (overrides(scheme, "query") or overrides(scheme, "key")):
        return None
    if type(scheme).query is not RoPE.query or type(scheme).key is not RoPE.key:
        # A scale of queries or keys would not cancel against the denominator, which has none.
        return "it scales queries or keys instead of only rotating them"
    if getattr(scheme, "given_attention_factor", None) is not None:
        return "its attention_factor is a temperature, and without a softmax there is none"
    # Draws of randomised positions come from outside, and are written with the keys that stand there.
    fixed = {k: v for k, v in options.items() if k not in ("positions", "max_position")}
    if not create_parts([(name, fixed)], scheme.dims)[name].prefix_invariant:
        return "its rotation follows the length at hand, and keys already summed cannot turn again"
    return None
