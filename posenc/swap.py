"""Which other schemes a checkpoint may be read under, and with which options."""

import jax
from flax import nnx

from posenc.base import Dims, Scheme
from posenc.schemes import create_parts, option_names
from posenc.spec import Part, format_spec


def swap(trained: list[Part], asked: list[Part], dims: Dims) -> list[Part]:
    """The `asked` spec, completed for a checkpoint trained under `trained`; ValueError if it cannot
    be read so.

    Allowed are a trained scheme itself, any of its `swaps`, and either together with parts that own
    no parameters (`rope+log_n`). A scheme takes every option that it shares with the trained one
    from there unless given, so `rope` and `pi:factor=1` reproduce a rope run with a base of its own
    exactly.
    """
    old_schemes = create_parts(trained, dims, nnx.Rngs(0))
    heirs = {}  # asked name -> the trained part it stands for
    for name, _ in asked:
        for old, _ in trained:
            if name == old or (name in old_schemes[old].swaps and name not in heirs):
                heirs[name] = old
    options = dict(trained)
    completed = [(name, inherit(name, given, heirs.get(name), options)) for name, given in asked]
    new_schemes = create_parts(completed, dims, nnx.Rngs(0))
    added = {n: parameters(s) for n, s in new_schemes.items() if n not in heirs}
    lacks = [f"{name}.{parameter}" for name, owned in added.items() for parameter in owned]
    unused = [
        f"{old}.{parameter}"
        for old, scheme in old_schemes.items()
        for parameter in parameters(scheme)
        if old not in heirs.values()
    ]
    if heirs and not lacks and not unused:
        return completed
    serves = "; ".join(
        f"{old} serves {', '.join(dict.fromkeys((old, *s.swaps)))}"
        for old, s in old_schemes.items()
    )
    why = f"; it lacks {', '.join(lacks)}" if lacks else ""
    why += f"; {', '.join(unused)} would be left unused" if unused else ""
    raise ValueError(
        f"a checkpoint of {format_spec(trained)} cannot be read as {format_spec(asked)}{why} ({serves})"
    )


# An option given with this value makes that other one meaningless, which is then not taken over.
SWITCHED_OFF = {("positions", "arange"): "max_position", ("ramp", "wavelength"): "truncate"}


def inherit(name: str, given: dict, old: str | None, trained: dict[str, dict]) -> dict:
    if old is None:
        return given
    shared = {k: v for k, v in trained[old].items() if k in option_names(name)}
    if name != old and "dynamic_ntk" in (name, old):
        shared.pop("factor", None)  # its factor is Hugging Face's f, not the extension factor
    for (option, value), idle in SWITCHED_OFF.items():
        if given.get(option) == value:
            shared.pop(idle, None)
    return {**shared, **given}


def parameters(scheme: Scheme) -> list[str]:
    """Names of the parameters a scheme owns."""
    leaves = jax.tree_util.tree_leaves_with_path(nnx.to_pure_dict(nnx.state(scheme, nnx.Param)))
    return [".".join(str(key.key) for key in path) for path, _ in leaves]
