"""The table of schemes, and how one is made from its spec."""

import inspect
from collections.abc import Mapping

from flax import nnx

from posenc.absolute import Learned, NoPE, Sinusoidal
from posenc.alibi import ALiBi
from posenc.base import Dims, Scheme
from posenc.composition import Composition
from posenc.cope import CoPE
from posenc.deberta import DeBERTa
from posenc.fire import FIRE
from posenc.kerple import Kerple
from posenc.llama3 import Llama3
from posenc.log_n import LogN
from posenc.longrope import LongRoPE
from posenc.p_rope import PRoPE
from posenc.rope import NTK, PI, DynamicNTK, DynamicPI, RoPE
from posenc.sandwich import Sandwich
from posenc.shaw import Shaw
from posenc.spec import Part, did_you_mean, format_spec, parse_spec
from posenc.t5 import T5
from posenc.transformer_xl import TransformerXL, XLNet
from posenc.window import Window
from posenc.xpos import XPos
from posenc.yarn import DynamicYaRN, NTKByParts, YaRN

SCHEMES: dict[str, type[Scheme]] = {
    # nowhere
    "nope": NoPE,
    # on the embeddings
    "sinusoidal": Sinusoidal,
    "learned": Learned,
    # on queries and keys
    "rope": RoPE,
    "pi": PI,
    "dynamic_pi": DynamicPI,
    "ntk": NTK,
    "dynamic_ntk": DynamicNTK,
    "ntk_by_parts": NTKByParts,
    "yarn": YaRN,
    "dynamic_yarn": DynamicYaRN,
    "llama3": Llama3,
    "longrope": LongRoPE,
    "p_rope": PRoPE,
    "xpos": XPos,
    "log_n": LogN,
    # on the logits, by distance
    "alibi": ALiBi,
    "t5": T5,
    "kerple": Kerple,
    "sandwich": Sandwich,
    "fire": FIRE,
    # on the logits, where a distance or a count meets queries and keys
    "shaw": Shaw,  # on the values, too
    "transformer_xl": TransformerXL,
    "xlnet": XLNet,
    "deberta": DeBERTa,  # scales queries, too
    "cope": CoPE,
    # on what a query sees
    "window": Window,
}


def create(spec: str | Mapping, dims: Dims, rngs: nnx.Rngs | None = None, **options) -> Scheme:
    """The scheme a spec names, built for `dims`, its parameters drawn from `rngs.posenc`.

    spec: "yarn", "yarn:factor=4", "rope+log_n", or {"scheme": "yarn", "factor": 4.0}. Keywords add
    options to a single scheme. ValueError names an unknown scheme or option, or a value that does
    not fit.
    """
    parts = parse_spec(spec)
    if options:
        if len(parts) > 1:
            raise ValueError(
                f"{spec}: in a composition each part carries its own options, as in yarn:factor=4+log_n; "
                f"got {', '.join(options)} beside it"
            )
        name, written = parts[0]
        twice = written.keys() & options.keys()
        if twice:
            raise ValueError(f"{spec}: {', '.join(sorted(twice))} is given twice")
        parts = [(name, {**written, **options})]
    schemes = create_parts(parts, dims, rngs)
    return next(iter(schemes.values())) if len(schemes) == 1 else Composition(schemes)


def create_parts(parts: list[Part], dims: Dims, rngs: nnx.Rngs | None = None) -> dict[str, Scheme]:
    """The schemes of a parsed spec by name, in order; the checks of `create`."""
    names = [name for name, _ in parts]
    for name, options in parts:
        if name not in SCHEMES:
            raise ValueError(f"{name} is no position scheme; {did_you_mean(name, SCHEMES)}")
        for option in options:
            if option in ("mscale", "mscale_all_dim"):
                raise ValueError(
                    f"{name}: {option} is not supported, as loaders disagree on what it means; give attention_factor"
                )
            if option not in option_names(name):
                raise ValueError(
                    f"{name} has no option {option}; {did_you_mean(option, option_names(name))}"
                )
            given, of_floats = options[option], "float" in str(option_types(name)[option])
            if isinstance(given, int) and abs(given) >= 2**31 and not of_floats:
                raise ValueError(f"{name}: {option}={given} is larger than 32 bits hold")
        if names.count(name) > 1:
            raise ValueError(f"{name} stands twice in {format_spec(parts)}")
    rotations = [name for name in names if issubclass(SCHEMES[name], RoPE)]
    if len(rotations) > 1:
        raise ValueError(f"{' and '.join(rotations)} both rotate queries and keys; keep one")
    for name, options in parts:
        absolute = [other for other in names if overrides_embed(SCHEMES[other])]
        if name == "window" and options.get("streaming") and absolute:
            raise ValueError(
                f"{format_spec(parts)}: streaming moves positions, and {', '.join(absolute)} has added them to the "
                "embeddings; leave streaming out"
            )
    schemes = {}
    for name, options in parts:
        try:
            schemes[name] = SCHEMES[name](dims, rngs, **options)
        except ValueError as error:
            if str(error).startswith("model."):
                raise
            raise type(error)(f"{name}: {error}") from None
    return schemes


def overrides_embed(cls: type[Scheme]) -> bool:
    return cls.embed is not Scheme.embed


def option_names(name: str) -> list[str]:
    """The options of a registered scheme, its own first."""
    return list(option_types(name))


def option_types(name: str) -> dict[str, type]:
    """The annotated type of each option of a registered scheme, by name."""
    types = {}
    for cls in SCHEMES[name].__mro__:
        if "__init__" in vars(cls) and issubclass(cls, Scheme):
            for parameter in inspect.signature(cls.__init__).parameters.values():
                if parameter.kind is parameter.KEYWORD_ONLY:
                    types.setdefault(parameter.name, parameter.annotation)
    return types
