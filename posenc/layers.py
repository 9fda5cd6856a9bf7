"""Schemes by layer: `rope|rope|rope|nope` cycles over the layers of a model.

Each element is a spec of its own, so local layers with a window and one base can alternate with
global ones of another: `rope:base=10000+window:size=64|rope:base=1000000`. Equal parts share one
instance and its parameters; what a part does to the embeddings is done once, before the first layer.
"""

import dataclasses
from collections.abc import Mapping

from flax import nnx

from posenc.base import Dims, Scheme
from posenc.schemes import create_parts
from posenc.spec import Part, format_spec, parse_spec
from posenc.swap import swap

Pattern = list[list[Part]]  # the parts of each element


def parse_pattern(spec: str | Mapping) -> Pattern:
    """The elements of a spec, one for a scheme that all layers share. ValueError says what is wrong."""
    if isinstance(spec, str) and "|" in spec:
        return [parse_spec(element) for element in spec.split("|")]
    return [parse_spec(spec)]


def format_pattern(pattern: Pattern) -> str:
    """The one-line spelling; `parse_pattern` reads it back."""
    return "|".join(format_spec(parts) for parts in pattern)


def swap_pattern(trained: Pattern, asked: Pattern, dims: Dims) -> Pattern:
    """`posenc.swap` in every layer: the asked pattern, completed; ValueError if any layer cannot be read so.

    A single asked element stands for every layer.
    """
    if len(asked) == 1:
        asked = asked * len(trained)
    if len(trained) == 1:
        trained = trained * len(asked)
    if len(asked) != len(trained):
        raise ValueError(
            f"{format_pattern(asked)} alternates over {len(asked)} layers, and the checkpoint's "
            f"{format_pattern(trained)} over {len(trained)}"
        )
    completed = [swap(old, new, dims) for old, new in zip(trained, asked, strict=True)]
    same = all(parts == completed[0] for parts in completed)
    return completed[:1] if same else completed


@dataclasses.dataclass
class LayerSchemes:
    """The schemes of a model, by the names their parameters are stored under."""

    shared: dict[str, Scheme]  # one instance for all layers that name it
    own: list[dict[str, Scheme]]  # per layer: those with parameters in each block
    names: tuple[tuple[str, ...], ...]  # per layer: which of the shared ones act there


def create_layers(
    spec: str | Mapping, dims: Dims, num_layers: int, rngs: nnx.Rngs | None = None
) -> LayerSchemes:
    """The schemes of each of `num_layers` layers; the checks of `posenc.create`, and one that every element is used."""
    pattern = parse_pattern(spec)
    if len(pattern) > num_layers:
        raise ValueError(
            f"{format_pattern(pattern)} alternates over {len(pattern)} layers; "
            f"model.num_layers={num_layers} leaves some without effect"
        )
    variants: dict[str, list[dict]] = {}  # the different options a name stands with
    for name, options in (part for parts in pattern for part in parts):
        if options not in variants.setdefault(name, []):
            variants[name].append(options)

    def stored(name: str, options: dict) -> str:
        several = len(variants[name]) > 1
        return f"{name}@{variants[name].index(options)}" if several else name

    shared, own, names = {}, [], []
    for layer in range(num_layers):
        parts = pattern[layer % len(pattern)]
        made = create_parts(parts, dims, rngs)
        keys = {name: stored(name, options) for name, options in parts}
        own.append({keys[n]: s for n, s in made.items() if s.per_layer})
        here = {keys[n]: s for n, s in made.items() if not s.per_layer}
        shared = {**here, **shared}  # the first instance stays
        names.append(tuple(here))
    return LayerSchemes(shared, own, tuple(names))
