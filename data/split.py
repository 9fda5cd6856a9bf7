"""Which documents validate and test. Independent of seeds, batches, lengths and tokenizers."""

import hashlib
from collections.abc import Sequence

import numpy as np

SHARE = 0.05  # of the text's bytes, for validation and again for test
Piece = tuple[str, int, int]  # name, first byte, last byte + 1


def set_aside(
    pieces: Sequence[Piece],
    parts: Sequence[str],
    fixed: dict[str, tuple[str, ...]],
    text: np.ndarray,
) -> tuple[dict[str, list[Piece]], str]:
    """Share documents out to "train" and each of `parts`, in their order; and the rule in words.

    With names in `fixed`, those documents. Otherwise documents are taken in the order of a hash of
    their number and name while they fit into 5 % of the bytes, and if none fits the shortest one.
    With fewer documents of any length than that, the longest is cut at line ends into 90 %, 5 % and
    5 %, in this order (95 % and 5 % for one part). `text` holds the bytes, uint8, that the pieces
    point into.
    """
    if not parts:
        return {"train": list(pieces)}, "validation and test have sources of their own"
    if any(fixed.values()):
        by_name = {name: part for part in parts for name in fixed[part]}
        missing = sorted(set(by_name) - {name for name, _, _ in pieces})
        if missing:
            raise ValueError(
                f"the text lacks the documents set aside by name: {', '.join(missing)}"
            )
        shares = {part: [] for part in ("train", *parts)}
        for piece in pieces:
            shares[by_name.get(piece[0], "train")].append(piece)
        return shares, "whole documents, by name"
    if sum(stop > start for _, start, stop in pieces) < len(parts) + 1:
        return _cut_longest(pieces, parts, text)
    order = sorted(range(len(pieces)), key=lambda index: _rank(index, pieces[index][0]))
    order = [index for index in order if pieces[index][2] > pieces[index][1]]
    goal = SHARE * sum(stop - start for _, start, stop in pieces)
    taken: dict[int, str] = {}
    for number, part in enumerate(parts):
        total, needed = 0, len(parts) - number  # one each for the parts to come and for training
        for index in order:
            size = pieces[index][2] - pieces[index][1]
            if len(order) - len(taken) == needed:
                break
            if index not in taken and total + size <= goal:
                taken[index] = part
                total += size
        if total == 0:
            left = [index for index in order if index not in taken]
            taken[min(left, key=lambda index: pieces[index][2] - pieces[index][1])] = part
    shares = {part: [] for part in ("train", *parts)}
    for index, piece in enumerate(pieces):
        shares[taken.get(index, "train")].append(piece)
    return (
        shares,
        f"whole documents, about {SHARE:.0%} of the bytes each, by a hash of number and name",
    )


def _rank(index: int, name: str) -> bytes:
    return hashlib.blake2b(f"{index}/{name}".encode(), digest_size=16).digest()


def _cut_longest(
    pieces: Sequence[Piece], parts: Sequence[str], text: np.ndarray
) -> tuple[dict[str, list[Piece]], str]:
    longest = max(range(len(pieces)), key=lambda index: pieces[index][2] - pieces[index][1])
    name, start, stop = pieces[longest]
    share = int(SHARE * (stop - start))
    cuts = [start]
    for count in range(len(parts), 0, -1):
        goal = stop - count * share
        cuts.append(goal + _line_end(text[goal : goal + share]))
    cuts.append(stop)
    if any(end <= begin for begin, end in zip(cuts, cuts[1:], strict=False)):
        raise ValueError(
            f"the text is too small to set some of it aside: {stop - start} bytes in its longest "
            "document; "
            "give data.valid_source and data.test_source, or more text"
        )
    shares: dict[str, list[Piece]] = {part: [] for part in ("train", *parts)}
    for index, piece in enumerate(pieces):
        if index != longest:
            shares["train"].append(piece)
            continue
        for part, begin, end in zip(("train", *parts), cuts, cuts[1:], strict=False):
            shares[part].append((f"{name}[{begin - start}:{end - start}]", begin, end))
    return (
        shares,
        "too few documents: the end of the longest one, cut at line ends where there are some",
    )


def _line_end(text: np.ndarray) -> int:
    """Bytes to the next line in the first half of `text`, else to the next UTF-8 character."""
    newlines = np.flatnonzero(text[: len(text) // 2] == ord("\n"))
    if newlines.size:
        return int(newlines[0]) + 1
    starts = np.flatnonzero((text[:4] & 0xC0) != 0x80)
    return int(starts[0]) if starts.size else 0
