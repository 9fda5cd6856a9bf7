"""How a position scheme is written in a config or on the command line.

    yarn        yarn:factor=4,beta_fast=32        rope+log_n        yarn:factor=4+log_n
    {"scheme": "longrope", "short_factor": (1.0, 1.05), "long_factor": (2.0, 4.0)}

`+` separates the parts of a composition, each with its own options after its own colon; so 1e4 and
not 1e+4. Numbers in a list are separated by slashes: `short_factor=1/1.05`.
"""

import difflib
import re
from collections.abc import Iterable, Mapping

Part = tuple[str, dict]  # a scheme's name and its options


def parse_spec(spec: str | Mapping) -> list[Part]:
    """The parts of a spec, each (name, options), options read to Python values. ValueError says what is wrong."""
    if isinstance(spec, Mapping):
        options = {key: plain(value) for key, value in spec.items() if key != "scheme"}
        name = spec.get("scheme")
        if not isinstance(name, str) or not re.fullmatch(r"\w+", name):
            raise ValueError(
                f"position={dict(spec)} must name one scheme, as in {{'scheme': 'yarn', 'factor': 4}}"
            )
        return [(name, options)]
    if not isinstance(spec, str) or not spec.strip():
        raise ValueError(
            f"position={spec!r} must be a scheme's name, such as rope or yarn:factor=4"
        )
    if "|" in spec:
        raise ValueError(f"position={spec!r}: `|` alternates schemes over layers; this needs one")
    return [parse_part(part.strip(), spec) for part in spec.split("+")]


def parse_part(part: str, spec: str) -> Part:
    name, colon, rest = part.partition(":")
    if not re.fullmatch(r"\w+", name) or name[0].isdigit():
        hint = " (`+` separates schemes: write 1e4, not 1e+4)" if "+" in spec else ""
        raise ValueError(f"position={spec!r}: {part!r} is not a scheme's name{hint}")
    options = {}
    for item in rest.split(",") if colon else []:
        key, equals, text = item.partition("=")
        if not equals or not key.strip() or not text.strip():
            raise ValueError(
                f"position={spec!r}: {item!r} should read option=value, as in {name}:base=10000"
            )
        if key.strip() in options:
            raise ValueError(f"position={spec!r}: {key.strip()} is given twice")
        options[key.strip()] = parse_value(text.strip())
    return name, options


def parse_value(text: str):
    """A number, True, False, None, a tuple of numbers written with slashes, or the text itself."""
    words = {"true": True, "false": False, "none": None}
    if text.lower() in words:
        return words[text.lower()]
    if "/" in text:
        return tuple(parse_value(item) for item in text.split("/") if item)
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            pass
    return text


def plain(value):
    """A config's value as Python's own: lists as tuples, so that it can be hashed, numpy's numbers as numbers."""
    if hasattr(value, "item"):
        value = value.tolist()
    sequence = isinstance(value, Iterable) and not isinstance(value, str | Mapping)
    return tuple(plain(item) for item in value) if sequence else value


def format_spec(parts: Iterable[Part]) -> str:
    """The one-line spelling of a spec; `parse_spec` reads it back to equal parts."""

    def text(value) -> str:
        if isinstance(
            value, tuple
        ):  # a list of one number keeps its slash, which is what makes it a list
            return "/".join(map(text, value)) + ("/" if len(value) == 1 else "")
        if isinstance(value, float):
            short = value.is_integer() and abs(value) < 1e15
            return str(int(value)) if short else repr(value).replace("e+", "e")
        return str(value)

    def part(name: str, options: dict) -> str:
        given = ",".join(f"{key}={text(value)}" for key, value in options.items())
        return f"{name}:{given}" if given else name

    return "+".join(part(name, options) for name, options in parts)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A closing clause for an error about an unknown word: the near miss, or all there is."""
    known = list(known)
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {close[0]}?"
    return f"known: {', '.join(known)}" if known else "it takes none"
