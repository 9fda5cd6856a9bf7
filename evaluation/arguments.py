"""What `sweep` accepts and the command spells: all is checked before any work, and an error names what is wrong."""

import re
from collections.abc import Sequence
from numbers import Integral

import numpy as np

from evaluation.protocols import PROTOCOLS

MOST = 10**9  # tokens: no document is that long, and sums of indices stay within 64 bits


def checked(
    lengths: Sequence[int],
    protocol: str,
    stride: int | None,
    targets: int,
    batch_size: int,
    train_length: int | None,
) -> tuple[list[int], int | None]:
    """(lengths, each once; stride, or None where the protocol chooses it or does not use it)."""
    if protocol not in PROTOCOLS:
        raise ValueError(
            f"protocol {protocol!r} is unknown: choose one of {', '.join(PROTOCOLS)}, probe:TASK"
        )
    try:
        lengths = list(lengths)
    except TypeError:
        raise ValueError(f"lengths must be a list of positive integers: got {lengths!r}") from None
    if not lengths:
        raise ValueError("lengths is empty: give at least one positive integer")
    lengths = list(dict.fromkeys(_positive("lengths", length) for length in lengths))
    shortest = min(lengths)
    _positive("batch_size", batch_size)
    if train_length is not None:
        _positive("train_length", train_length)
    elif protocol == "recurrent":
        raise ValueError("train_length is missing: recurrent reads segments of that many tokens")
    if protocol == "fixed":
        if _positive("targets", targets) > shortest:
            raise ValueError(f"targets {targets} exceeds the shortest of lengths, {shortest}")
        if stride is not None and _positive("stride", stride) < targets:
            overlap = f"makes blocks of {targets} targets overlap"
            raise ValueError(f"stride {stride} {overlap}: give at least {targets}")
    elif protocol == "sliding":
        if stride is not None and _positive("stride", stride) > shortest:
            raise ValueError(
                f"stride {stride} would skip targets at length {shortest}: give 1 to {shortest}"
            )
    else:
        stride = None
    return lengths, stride if stride is None else int(stride)


def _positive(name: str, value: object) -> int:
    if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
        kind = "positive integers" if name == "lengths" else "a positive integer"
        raise ValueError(f"{name} must be {kind}: got {value!r}")
    if value >= MOST:
        raise ValueError(f"{name} must be below {MOST}: got {value}")
    return int(value)


def checked_documents(documents: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The documents as integer arrays [n] whose ids fit in int32; an empty one has no targets."""
    checked = []
    for index, document in enumerate(documents):
        array = np.asarray(document)
        if array.size == 0:
            array = np.zeros(0, np.int32)
        if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
            found = f"shape {array.shape}, {array.dtype}"
            raise ValueError(f"documents[{index}] must be integers of shape [n]: got {found}")
        if array.size and not 0 <= int(array.min()) <= int(array.max()) < 2**31:
            raise ValueError(f"documents[{index}] has a token id outside 0 … 2^31 - 1")
        checked.append(array)
    return checked


def checked_token_bytes(
    token_bytes: np.ndarray | None, documents: list[np.ndarray]
) -> np.ndarray | None:
    """The bytes of each token id as int64 [V], or None. V must exceed every id there is."""
    if token_bytes is None:
        return None
    array = np.asarray(token_bytes)
    whole = array.ndim == 1 and np.issubdtype(array.dtype, np.integer)
    if not whole or array.min(initial=0) < 0:
        raise ValueError("token_bytes must be integers of shape [V], none negative")
    largest = max((int(document.max()) for document in documents if document.size), default=-1)
    if largest >= len(array):
        raise ValueError(
            f"token_bytes has {len(array)} entries, but the documents hold token id {largest}"
        )
    return array.astype(np.int64)


def split_list(name: str, text: str) -> list[str]:
    """The items of the flag --NAME=a,b, each once. ValueError where there are none."""
    items = list(dict.fromkeys(filter(None, (item.strip() for item in text.split(",")))))
    if not items:
        raise ValueError(f"--{name}={text} names nothing")
    return items


def read_lengths(text: str) -> list[int]:
    """Sorted, each once. ValueError unless they are positive whole numbers."""
    items = split_list("lengths", text)
    for item in items:
        if not re.fullmatch("[0-9]+", item) or int(item[:20]) < 1:
            raise ValueError(f"lengths={text}: {item!r} must be a positive whole number")
        if len(item) > 20 or int(item) >= MOST:
            raise ValueError(f"lengths={text}: {item!r} must be below {MOST}")
    return sorted({int(item) for item in items})


def split_schemes(text: str) -> list[str]:
    """A list of specs; an item that starts no scheme (`beta_fast=16`) continues the one before it."""
    specs = []
    for item in filter(None, (item.strip() for item in text.split(","))):
        if specs and re.match(r"\w+=", item):
            specs[-1] += f",{item}"
        else:
            specs.append(item)
    if not specs:
        raise ValueError(f"--schemes={text} names nothing: leave it out for each run's own")
    return list(dict.fromkeys(specs))
