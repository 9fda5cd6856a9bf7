"""`python -m posenc`: what each scheme does, as a table made from the schemes themselves."""

import argparse
import contextlib
import inspect
from pathlib import Path

from flax import nnx

from posenc.base import Dims
from posenc.composition import overrides
from posenc.schemes import SCHEMES
from posenc.swap import parameters

HOOKS = {
    "embed": "embeddings",
    "query": "queries",
    "key": "keys",
    "bias": "logits",
    "content": "logits by content",
    "value": "values",
    "visible": "mask",
}
COLUMNS = (
    "scheme",
    "acts on",
    "parameters",
    "relative",
    "prefix-invariant",
    "extrapolates",
    "reads checkpoints of",
    "paper",
    "file",
)
# What a scheme cannot be made without.
REQUIRED = {
    "longrope": {"short_factor": (1.0,) * 4, "long_factor": (1.0,) * 4},
    "window": {"size": 8},
}


def matrix() -> list[tuple[str, ...]]:
    """A row per scheme, in the order of SCHEMES: the claims of its default options, as text.

    "extrapolates": made to be used past the training length, by its paper's claim; curves show what comes of it.
    """
    dims = Dims(D=8, H=2, K=8, train_length=16)
    made = {name: cls(dims, nnx.Rngs(0), **REQUIRED.get(name, {})) for name, cls in SCHEMES.items()}
    rows = []
    for name, scheme in made.items():
        acts = [where for hook, where in HOOKS.items() if overrides(scheme, hook)]
        owned = ", ".join(parameters(scheme))
        owned += " in each layer" if owned and scheme.per_layer else ""
        origins = [other for other in made if name in made[other].swaps and other != name]
        family = "the rotary family" if len(origins) > 3 else ", ".join(origins)
        rows.append(
            (
                name,
                ", ".join(acts) or "nothing",
                owned or "none",
                yes(scheme.relative),
                yes(scheme.prefix_invariant),
                yes(scheme.extrapolates),
                family or "its own",
                scheme.paper,
                f"posenc/{Path(inspect.getfile(type(scheme))).name}",
            )
        )
    return rows


def yes(claim: bool) -> str:
    return "yes" if claim else "no"


def main() -> None:
    words = "What each scheme does, as a table made from the schemes themselves."
    argparse.ArgumentParser(prog="python -m posenc", description=words).parse_args()
    rows = [COLUMNS, *matrix()]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
    with contextlib.suppress(BrokenPipeError):  # `| head` has read enough
        print("\n".join(line.rstrip() for line in lines), flush=True)


if __name__ == "__main__":
    main()
