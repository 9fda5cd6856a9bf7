"""Text to token files, made once and found again by what they were made from."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data.config import DataConfig
from data.sources import Source, open_source
from data.split import Piece, set_aside
from data.token_file import TokenFile, open_token_file, write_token_file
from data.tokenizer import ByteTokenizer, Tokenizer, load_tokenizer, train_bpe

FORMAT = 1  # raise it when the same text would give other files
SPLITS = ("train", "valid", "test")


@dataclasses.dataclass(frozen=True)
class Corpus:
    """The three token files of a text, their tokenizer, and what meta.json says of them."""

    source: str  # one line for people: which text, and where it came from
    tokenizer: Tokenizer
    train: TokenFile
    valid: TokenFile
    test: TokenFile
    meta: dict
    directory: Path


def prepare(config: DataConfig) -> Corpus:
    """The token files of `config`: found in its cache folder, or made there.

    Their folder is named by a hash of the text's identity, the tokenizer and every option that
    matters, so any change makes a new one. It is written under another name and renamed when it is
    complete, meta.json last; one that does not fit its meta.json is made again. Several processes
    may prepare the same text at once.
    """
    cache = Path(config.cache_dir).expanduser().absolute()
    fields = {"train": "source", "valid": "valid_source", "test": "test_source"}
    sources = {
        split: open_source(field, config, cache)
        for split, field in fields.items()
        if getattr(config, field)
    }
    for split, other in (("valid", "train"), ("test", "train"), ("test", "valid")):
        if split in sources and other in sources:
            shared = sorted(sources[split].paths & sources[other].paths)
            if shared:
                raise ValueError(
                    f"data.{fields[split]}: {shared[0]} is also in data.{fields[other]}"
                )
    key = {
        "format": FORMAT,
        "sources": {split: source.key for split, source in sources.items()},
        "tokenizer": config.tokenizer,
        "max_documents": config.max_documents,
    }
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:20]
    directory = cache / f"tokens-{digest}"
    corpus = _open(directory)
    if corpus is None:
        _make(directory, sources, key, config)
        corpus = _open(directory)
        if corpus is None:
            raise ValueError(
                f"data.cache_dir: {directory} was changed while it was made; start again"
            )
    return corpus


def _open(directory: Path) -> Corpus | None:
    """The corpus in `directory`, or None when it is missing or not whole."""
    try:
        meta = json.loads((directory / "meta.json").read_text(encoding="utf-8"))
        files = {
            split: open_token_file(directory, split, meta["splits"][split]) for split in SPLITS
        }
        tokenizer = load_tokenizer(meta["tokenizer"], directory)
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return Corpus(meta["source"], tokenizer, **files, meta=meta, directory=directory)


def _make(directory: Path, sources: dict[str, Source], key: dict, config: DataConfig) -> None:
    directory.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".tmp-{directory.name}-"))
    try:
        meta = _write(temporary, sources, key, config)
        with open(temporary / "meta.json", "w", encoding="utf-8") as file:
            json.dump(meta, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        _move_into_place(temporary, directory)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _move_into_place(temporary: Path, directory: Path) -> None:
    if directory.exists() and _open(directory) is None:  # broken: moved out of the way
        with contextlib.suppress(FileNotFoundError):
            os.rename(directory, temporary / "broken")
    try:
        os.rename(temporary, directory)
    except OSError:
        if _open(directory) is None:  # otherwise another process was first, with the same files
            raise
    shutil.rmtree(directory / "broken", ignore_errors=True)


def _write(directory: Path, sources: dict[str, Source], key: dict, config: DataConfig) -> dict:
    """Write everything but meta.json, which is returned."""
    spools = {
        split: _Spool(directory / f"{split}.text", source, config.max_documents)
        for split, source in sources.items()
    }
    own = [split for split in SPLITS if split not in sources]
    main = sources["train"]
    fixed = {
        split: names
        for split, names in (("valid", main.valid_names), ("test", main.test_names))
        if split in own
    }
    try:
        shares, rule = set_aside(spools["train"].pieces, own, fixed, spools["train"].text)
    except ValueError as error:
        raise ValueError(f'data.source="{config.source}": {error}') from None
    texts = {split: (spools["train"], shares[split]) for split in shares}
    texts |= {split: (spools[split], spools[split].pieces) for split in sources if split != "train"}
    tokenizer = _tokenizer(config.tokenizer, texts["train"])
    tokenizer.save(directory / "tokenizer.json")
    splits = {}
    for split in SPLITS:
        spool, pieces = texts[split]
        splits[split] = write_token_file(directory, split, spool.read(pieces), tokenizer)
        if split != "train":
            splits[split]["names"] = [name for name, _, _ in pieces]
    for spool in spools.values():
        spool.path.unlink()
    descriptions = [main.description]
    descriptions += [
        f"{split}: {sources[split].description}" for split in sources if split != "train"
    ]
    return {
        "source": "; ".join(descriptions),
        "key": key,
        "text_sha256": {split: spool.sha256 for split, spool in spools.items()},
        "tokenizer": tokenizer.identity(),
        "split_rule": rule,
        "splits": splits,
    }


def _tokenizer(name: str, train: tuple["_Spool", list[Piece]]) -> Tokenizer:
    if name == "byte":
        return ByteTokenizer()
    spool, pieces = train
    return train_bpe(name, (text for _, text in spool.read(pieces)))


class _Spool:
    """The documents of a source, one after the other in a file, to be read as often as needed."""

    def __init__(self, path: Path, source: Source, limit: int):
        self.path = path
        self.pieces: list[Piece] = []
        digest = hashlib.sha256()
        position = 0
        with open(path, "wb") as file, contextlib.closing(source.documents()) as documents:
            for name, text in itertools.islice(documents, limit or None):
                file.write(text)
                digest.update(f"{len(text)}:".encode())
                digest.update(text)
                self.pieces.append((name, position, position + len(text)))
                position += len(text)
        if position == 0:
            raise ValueError(
                f"{source.description}: there is no text in its {len(self.pieces)} documents"
            )
        self.sha256 = digest.hexdigest()
        self.text = np.memmap(path, np.uint8, "r")

    def read(self, pieces: list[Piece]) -> Iterator[tuple[str, bytes]]:
        for name, start, stop in pieces:
            yield name, self.text[start:stop].tobytes()
