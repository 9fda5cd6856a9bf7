"""Bytes to token ids and back, exactly, for any bytes.

byte      ids 0..255 are the bytes, 256 is the separator. bpe:SIZE  byte-level BPE, trained on the
training text only. Each byte becomes the character of the same number
          (Latin-1) before BPE sees it, so invalid UTF-8 is text like any other: nothing is replaced
          or dropped, and decode(encode(text)) == text always. Bytes of 128 and more are
          merged with one another and not with ASCII letters: words in other alphabets stay whole,
          "naïve" is three pieces. The separator is the last id,
          SIZE - 1.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

BYTE_SPECIFICATION = b"byte: ids 0..255 are the bytes, 256 is the separator"
BYTE_PIECE = 1 << 22  # bytes encoded at a time: bounds memory on one huge document
BPE_PIECE = 1 << 16
LARGEST = 1 << 20  # vocabulary; the library ends the process where memory for one is lacking
BPE_PIECES = 64  # pieces given to the library at a time

_SPACE = r" \t\r\n\x0b\x0c"
# The library takes these \x… for no character; they stay, for the pattern is part of what saved
# tokenizers are known by.
_LETTER = r"A-Za-z\x80-\xff"
_WORDS = (
    f" ?[{_LETTER}]+| ?[0-9]+| ?[^{_SPACE}{_LETTER}0-9]+|[{_SPACE}]+(?![^{_SPACE}])|[{_SPACE}]+"
)
# A word never spans a change from non-space to space, so cutting there changes no token.
_CUT = re.compile(rb"[^ \t\r\n\x0b\x0c](?=[ \t\r\n\x0b\x0c])")
_CUT_REACH = 1 << 10


def check_tokenizer_name(name: str) -> int:
    """The vocabulary size, separator included, that "byte" or "bpe:SIZE" asks for."""
    if name == "byte":
        return 257
    kind, _, size = name.partition(":") if isinstance(name, str) else ("", "", "")
    if kind == "bpe" and size.isascii() and size.isdigit() and len(size) <= len(str(LARGEST)):
        if 257 <= int(size) <= LARGEST:
            return int(size)
    raise ValueError(
        f'data.tokenizer={name!r} should be "byte" or "bpe:SIZE" with SIZE 257 or more, {LARGEST} at most'
    )


class Tokenizer:
    """What the two kinds share. token_bytes int32 [V]: bytes of text per id, separator 0."""

    name: str
    sha256: str
    vocab_size: int
    separator: int
    token_bytes: np.ndarray

    def pieces(self, text: bytes) -> Iterator[np.ndarray]:
        """The ids of `encode`, in parts of bounded size, each int32 [n]."""
        raise NotImplementedError

    def encode(self, text: bytes) -> np.ndarray:
        """int32 [n], without separators; `token_bytes[ids].sum() == len(text)`."""
        if not isinstance(text, bytes):
            raise TypeError(f"encode takes bytes, not {type(text).__name__}; write text.encode()")
        return np.concatenate([np.zeros(0, np.int32), *self.pieces(text)])

    def decode(self, ids: Iterable[int]) -> bytes:
        """The bytes of the ids [n], separators dropped. ValueError on an id not in 0..V - 1."""
        ids = np.asarray(ids, np.int64).reshape(-1)
        check_ids(ids, self.vocab_size)
        return self._join(ids[ids != self.separator])

    def identity(self) -> dict:
        """What a run records; `load_tokenizer` takes it back."""
        return {
            "name": self.name,
            "sha256": self.sha256,
            "vocab_size": self.vocab_size,
            "separator": self.separator,
        }

    def save(self, path: str | Path) -> None:
        """Write what `load_tokenizer` needs beside the identity; its sha256 is `self.sha256`."""
        Path(path).write_bytes(self._file())


class ByteTokenizer(Tokenizer):
    """Ids 0..255 are the bytes, 256 is the separator."""

    def __init__(self):
        self.name = "byte"
        self.sha256 = hashlib.sha256(BYTE_SPECIFICATION).hexdigest()
        self.vocab_size = 257
        self.separator = 256
        self.token_bytes = np.ones(257, np.int32)
        self.token_bytes[256] = 0

    def pieces(self, text: bytes) -> Iterator[np.ndarray]:
        for start in range(0, len(text), BYTE_PIECE):
            count = min(BYTE_PIECE, len(text) - start)
            yield np.frombuffer(text, np.uint8, count, start).astype(np.int32)

    def _join(self, ids: np.ndarray) -> bytes:
        return ids.astype(np.uint8).tobytes()

    def _file(self) -> bytes:
        return BYTE_SPECIFICATION


class BPETokenizer(Tokenizer):
    """Byte-level BPE over Latin-1 characters, from the JSON text that `train_bpe` made."""

    def __init__(self, name: str, text: str):
        import tokenizers

        self.name = name
        self.vocab_size = check_tokenizer_name(name)
        self.separator = self.vocab_size - 1
        self._text = text
        self.sha256 = hashlib.sha256(text.encode()).hexdigest()
        try:
            self._bpe = tokenizers.Tokenizer.from_str(text)
        except Exception as error:  # the library raises nothing narrower
            raise ValueError(f"{name}: its saved file is no tokenizer: {error}") from None
        ids = {index: token for token, index in self._bpe.get_vocab().items()}
        if sorted(ids) != list(range(self.separator)):
            raise ValueError(
                f"{name}: {len(ids)} tokens in the vocabulary, expected ids 0..{self.separator - 1}"
            )
        self._tokens = [ids[index].encode("latin-1") for index in range(self.separator)]
        self.token_bytes = np.array([*map(len, self._tokens), 0], np.int32)

    def pieces(self, text: bytes) -> Iterator[np.ndarray]:
        batch: list[str] = []
        for piece in _cut(text):
            batch.append(piece.decode("latin-1"))
            if len(batch) == BPE_PIECES:
                yield self._encode(batch)
                batch = []
        if batch:
            yield self._encode(batch)

    def _encode(self, batch: list[str]) -> np.ndarray:
        encodings = self._bpe.encode_batch_fast(batch, add_special_tokens=False)
        return np.concatenate([np.array(encoding.ids, np.int32) for encoding in encodings])

    def _join(self, ids: np.ndarray) -> bytes:
        return b"".join(self._tokens[index] for index in ids)

    def _file(self) -> bytes:
        return self._text.encode()


def train_bpe(name: str, texts: Iterable[bytes]) -> BPETokenizer:
    """Learn "bpe:SIZE" from `texts`, always the same: 256 bytes, SIZE - 257 merges, separator."""
    import tokenizers

    size = check_tokenizer_name(name)
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    words = tokenizers.Regex(_WORDS)
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.Split(words, "isolated")
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=size - 1,
        min_frequency=2,
        show_progress=False,
        initial_alphabet=[chr(index) for index in range(256)],
    )
    pieces = (piece.decode("latin-1") for text in texts for piece in _cut(text))
    bpe.train_from_iterator(pieces, trainer)
    found = bpe.get_vocab_size() + 1
    if found < size:
        raise ValueError(
            f'data.tokenizer="{name}": the training text gives only {found} tokens; '
            f'use "bpe:{found}" or fewer'
        )
    return BPETokenizer(name, bpe.to_str())


def load_tokenizer(identity: dict, path: str | Path | None = None) -> Tokenizer:
    """The tokenizer of `identity`; BPE reads what `save` wrote at `path`, or tokenizer.json in it.

    ValueError when the file is missing or is not the one of the identity.
    """
    if not isinstance(identity, dict) or not {"name", "sha256"} <= set(identity):
        raise ValueError(f"no tokenizer is known by {json.dumps(identity)}")
    if identity["name"] == "byte":
        tokenizer = ByteTokenizer()
    else:
        if path is None:
            raise ValueError(f"tokenizer {identity['name']}: the path of its saved file is needed")
        path = Path(path)
        path = path / "tokenizer.json" if path.is_dir() else path
        if not path.is_file():
            raise ValueError(f"tokenizer {identity['name']}: {path} is missing")
        content = path.read_bytes()
        found = hashlib.sha256(content).hexdigest()
        if found != identity["sha256"]:
            raise ValueError(
                f"tokenizer {identity['name']}: {path} has sha256 {found}, "
                f"the run was trained with {identity['sha256']}"
            )
        tokenizer = BPETokenizer(identity["name"], content.decode())
    if tokenizer.identity() != identity:
        raise ValueError(
            f"tokenizer mismatch: {json.dumps(tokenizer.identity())} is not {json.dumps(identity)}"
        )
    return tokenizer


def check_ids(ids: np.ndarray, vocab_size: int) -> None:
    """ValueError naming the first id that is not in 0..vocab_size - 1."""
    wrong = ids[(ids < 0) | (ids >= vocab_size)]
    if wrong.size:
        raise ValueError(f"token id {int(wrong[0])} is outside the vocabulary of {vocab_size}")


def _cut(text: bytes) -> Iterator[bytes]:
    """Pieces of at most BPE_PIECE bytes, cut before white space where there is some near the end.

    Only a run of BPE_PIECE bytes without white space at its end is cut inside a word: never lossy,
    and the same each time.
    """
    start = 0
    while len(text) - start > BPE_PIECE:
        stop = start + BPE_PIECE
        for match in _CUT.finditer(text, stop - _CUT_REACH, stop):
            stop = match.end()
        yield text[start:stop]
        start = stop
    if start < len(text):
        yield text[start:]
