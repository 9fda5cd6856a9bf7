"""Position schemes behind one interface. `python -c "import posenc; help(posenc.Scheme)"` shows the
hooks.

    scheme = posenc.create("yarn", dims, rngs, factor=4.0) scheme =
    posenc.create("yarn:factor=4+log_n", posenc.Dims(D=128, H=4, K=32, train_length=64), rngs)
"""

from posenc.base import Dims, LengthError, Scheme
from posenc.composition import Composition, overrides
from posenc.layers import (
    LayerSchemes,
    create_layers,
    format_pattern,
    parse_pattern,
    swap_pattern,
)
from posenc.rotation import Rotation, is_rotation
from posenc.schemes import SCHEMES, create, create_parts, option_names
from posenc.spec import did_you_mean, format_spec, parse_spec
from posenc.swap import swap

__all__ = [
    "SCHEMES",
    "Composition",
    "Dims",
    "LayerSchemes",
    "LengthError",
    "Rotation",
    "Scheme",
    "create",
    "create_layers",
    "create_parts",
    "did_you_mean",
    "format_pattern",
    "format_spec",
    "is_rotation",
    "option_names",
    "overrides",
    "parse_pattern",
    "parse_spec",
    "swap",
    "swap_pattern",
]
