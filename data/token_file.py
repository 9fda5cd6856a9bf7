"""The token stream of one split on disk: a memmap of ids and where each document starts."""

import dataclasses
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
    with open(directory / f"{split}.tokens", "wb") as file:
        for name, text in documents:
            count, covered = 0, 0
            for ids in tokenizer.pieces(text):
                check_ids(ids, tokenizer.vocab_size)
                file.write(ids.astype(dtype).tobytes())
                count += len(ids)
                covered += int(tokenizer.token_bytes[ids].sum(dtype=np.int64))
            if covered != len(text):
                raise ValueError(f"{name}: its tokens stand for {covered} bytes of {len(text)}")
            file.write(separator)
            offsets.append(offsets[-1] + count + 1)
            names.append(name)
            size += len(text)
    np.array(offsets, np.int64).tofile(directory / f"{split}.offsets")
    (directory / f"{split}.names.json").write_text(json.dumps(names), encoding="utf-8")
    return {
        "tokens": offsets[-1],
        "documents": len(names),
        "bytes": size,
        "dtype": dtype.name,
        "separator": tokenizer.separator,
    }


def open_token_file(directory: Path, split: str, counts: dict) -> TokenFile:
    """The token file that `counts` describes; ValueError when what lies there does not fit."""
    dtype = np.dtype(counts["dtype"])
    tokens_path, offsets_path = directory / f"{split}.tokens", directory / f"{split}.offsets"
    names_path = directory / f"{split}.names.json"
    wanted = {
        tokens_path: counts["tokens"] * dtype.itemsize,
        offsets_path: (counts["documents"] + 1) * 8,
    }
    for path, size in wanted.items():
        if not path.is_file() or path.stat().st_size != size:
            raise ValueError(f"{path} should hold {size} bytes")
    offsets = np.fromfile(offsets_path, np.int64)
    names = json.loads(names_path.read_text(encoding="utf-8"))
    if offsets[0] != 0 or offsets[-1] != counts["tokens"] or len(names) != counts["documents"]:
        raise ValueError(f"{offsets_path} and {names_path} do not fit {tokens_path}")
    tokens = np.memmap(tokens_path, dtype, "r") if counts["tokens"] else np.zeros(0, dtype)
    return TokenFile(tokens, offsets, names, counts["separator"])
