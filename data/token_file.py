"""The token stream of one split on disk: a memmap of ids and where each document starts."""

import dataclasses
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from data.tokenizer import Tokenizer, check_ids


def id_dtype(vocab_size: int) -> np.dtype:
    """The smallest of uint8, uint16 and uint32 that holds the id vocab_size - 1."""
    for dtype in (np.uint8, np.uint16, np.uint32):
        if vocab_size - 1 <= np.iinfo(dtype).max:
            return np.dtype(dtype)
    raise ValueError(f"a vocabulary of {vocab_size} does not fit 32 bits")


@dataclasses.dataclass(frozen=True)
class TokenFile:
    """tokens [N], one separator after each document; offsets int64 [n + 1], their starts and N."""

    tokens: np.ndarray
    offsets: np.ndarray
    names: list[str]
    separator: int

    @property
    def num_tokens(self) -> int:
        """N, separators included."""
        return len(self.tokens)

    def document(self, index: int) -> np.ndarray:
        """int32 [n]: the tokens of one document, without its separator."""
        count = len(self.offsets) - 1
        if not 0 <= index < count:
            raise IndexError(f"document {index} of {count}")
        return np.asarray(self.tokens[self.offsets[index] : self.offsets[index + 1] - 1], np.int32)

    def documents(self) -> list[np.ndarray]:
        """All documents, each int32 [n], without separators."""
        return [self.document(index) for index in range(len(self.offsets) - 1)]


def write_token_file(
    directory: Path, split: str, documents: Iterable[tuple[str, bytes]], tokenizer: Tokenizer
) -> dict:
    """Write SPLIT.tokens, SPLIT.offsets and SPLIT.names.json; the counts for `open_token_file`.

    ValueError when an id is outside the vocabulary or the tokens of a document do not stand for all
    of its bytes.
    """
    dtype = id_dtype(tokenizer.vocab_size)
    separator = np.array([tokenizer.separator], dtype).tobytes()
    offsets, names, size = [0], [], 0
    digest = hashlib.sha256()
    with open(directory / f"{split}.tokens", "wb") as file:

        def write(content: bytes) -> None:
            file.write(content)
            digest.update(content)

        for name, text in documents:
            count, covered = 0, 0
            for ids in tokenizer.pieces(text):
                check_ids(ids, tokenizer.vocab_size)
                write(ids.astype(dtype).tobytes())
                count += len(ids)
                covered += int(tokenizer.token_bytes[ids].sum(dtype=np.int64))
            if covered != len(text):
                raise ValueError(f"{name}: its tokens stand for {covered} bytes of {len(text)}")
            write(separator)
            offsets.append(offsets[-1] + count + 1)
            names.append(name)
            size += len(text)
    others = {
        "offsets": np.array(offsets, np.int64).tobytes(),
        "names.json": json.dumps(names).encode(),
    }
    for ending, content in others.items():
        (directory / f"{split}.{ending}").write_bytes(content)
    return {
        "tokens": offsets[-1],
        "documents": len(names),
        "bytes": size,
        "dtype": dtype.name,
        "separator": tokenizer.separator,
        "sha256": {
            "tokens": digest.hexdigest(),
            **{ending: hashlib.sha256(content).hexdigest() for ending, content in others.items()},
        },
    }


def open_token_file(directory: Path, split: str, counts: dict) -> TokenFile:
    """The token file that `counts` describes; ValueError when what lies there does not fit.

    Sizes are compared before anything is read, and the content with its sha256: a second for 1.5 GB
    on the machine it was measured on, so that no changed token is ever trained on.
    """
    tokens, documents = (_count(counts, name) for name in ("tokens", "documents"))
    if counts["dtype"] not in ("uint8", "uint16", "uint32"):
        raise ValueError(f"{split}: no tokens are of the type {counts['dtype']!r}")
    dtype = np.dtype(counts["dtype"])
    if _count(counts, "separator") > np.iinfo(dtype).max:
        raise ValueError(f"{split}: the separator {counts['separator']} is no {dtype.name}")
    paths = {name: directory / f"{split}.{name}" for name in ("tokens", "offsets", "names.json")}
    for name, size in (("tokens", tokens * dtype.itemsize), ("offsets", (documents + 1) * 8)):
        if not paths[name].is_file() or paths[name].stat().st_size != size:
            raise ValueError(f"{paths[name]} should hold {size} bytes")
    for name, path in paths.items():
        with open(path, "rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != counts["sha256"][name]:
                raise ValueError(f"{path} is not what was written")
    offsets = np.fromfile(paths["offsets"], np.int64)
    names = json.loads(paths["names.json"].read_bytes())
    whole = offsets[0] == 0 and offsets[-1] == tokens and (np.diff(offsets) > 0).all()
    if not whole or not isinstance(names, list) or len(names) != documents:
        raise ValueError(f"{paths['offsets']} and {paths['names.json']} do not fit the tokens")
    stream = np.memmap(paths["tokens"], dtype, "r") if tokens else np.zeros(0, dtype)
    return TokenFile(stream, offsets, names, counts["separator"])


def _count(counts: dict, name: str) -> int:
    value = counts[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name}={value!r} is no count")
    return value
