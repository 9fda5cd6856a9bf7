"""Text to token files, made once and found again by what they were made from."""

import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from data.cache import locked, making, naming_cache, note, remove_left_overs
from data.config import DataConfig
from data.sources import Source, open_source
from data.split import Piece, set_aside
from data.token_file import TokenFile, open_token_file, write_token_file
from data.tokenizer import ByteTokenizer, Tokenizer, load_tokenizer, train_bpe

FORMAT = (
    1  # raise it when the same text gives other tokens: runs of the older ones are refused then
)
LAYOUT = 2  # raise it when older files are not to be used, though a run goes on from their text
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

    def is_text_of(self, recorded: dict) -> bool:
        """Whether this is the text, set aside alike, of a run whose config.json holds `recorded` as "corpus"."""
        hashes = self.meta["text_sha256"]
        return (
            recorded.get("key") == self.meta["key"]
            and recorded.get("text_sha256", hashes) == hashes
        )


def prepare(config: DataConfig) -> Corpus:
    """The token files of `config`: found in its cache folder, or made there.

    Their folder is named by a hash of the text's identity, the tokenizer and every option that
    matters, so any change makes a new one. It is written under another name and renamed when it is
    complete, meta.json last. One that is not as it was written, to the bit, is made again, and a line
    on stderr says so. Of several processes that prepare the same text one makes it and the others
    wait. ValueError names data.cache_dir where the folder is to blame, and a source whose files
    change while they are read.
    """
    try:
        cache = Path(config.cache_dir).expanduser().absolute()
    except RuntimeError:
        raise ValueError(
            f'data.cache_dir="{config.cache_dir}": this user has no home folder; name another folder'
        ) from None
    fields = {"train": "source", "valid": "valid_source", "test": "test_source"}
    fields = {split: field for split, field in fields.items() if getattr(config, field)}
    sources = {split: open_source(field, config, cache) for split, field in fields.items()}
    _refuse_shared_files(fields, sources)
    key = {
        "format": FORMAT,
        "sources": {split: source.key for split, source in sources.items()},
        "tokenizer": config.tokenizer,
        "max_documents": config.max_documents,
    }
    key = json.loads(json.dumps(key))  # with tuples as the lists that are read back
    name = f"tokens-{_sha256(key | {'layout': LAYOUT})[:20]}"
    directory = cache / name
    with naming_cache(cache):
        remove_left_overs(cache)
        corpus, damage = _find(directory, key)
        if corpus is None:
            cache.mkdir(parents=True, exist_ok=True)
            with locked(cache, name):
                corpus, damage = _find(directory, key)  # made meanwhile?
                if damage:
                    note(f"{directory} was damaged and is made again: {damage}")
                if corpus is None:
                    _make(directory, fields, sources, key, config)
                    corpus, damage = _find(directory, key)
    if corpus is None:
        raise ValueError(f"data.cache_dir: {directory} was changed while it was made; start again")
    # The same text may have been prepared from another place.
    source = _describe(sources)
    return dataclasses.replace(corpus, source=source, meta=corpus.meta | {"source": source})


def _refuse_shared_files(fields: dict[str, str], sources: dict[str, Source]) -> None:
    for split, other in (("valid", "train"), ("test", "train"), ("test", "valid")):
        if split in sources and other in sources:
            shared = sorted(sources[split].paths & sources[other].paths)
            if shared:
                raise ValueError(
                    f"data.{fields[split]}: {shared[0]} is also in data.{fields[other]}"
                )


def _find(directory: Path, key: dict) -> tuple[Corpus | None, str]:
    """The corpus in `directory`; or None and what is wrong with it, "" where there is nothing."""
    if not directory.exists():
        return None, ""
    try:
        meta = json.loads((directory / "meta.json").read_bytes())
        if meta.pop("sha256") != _sha256(meta) or meta["key"] != key:
            raise ValueError(f"{directory / 'meta.json'} is not what was written")
        files = {
            split: open_token_file(directory, split, meta["splits"][split]) for split in SPLITS
        }
        tokenizer = load_tokenizer(meta["tokenizer"], directory)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return None, f"{type(error).__name__}: {error}"
    return Corpus(meta["source"], tokenizer, **files, meta=meta, directory=directory), ""


def _make(
    directory: Path,
    fields: dict[str, str],
    sources: dict[str, Source],
    key: dict,
    config: DataConfig,
) -> None:
    cache = directory.parent
    with making(cache, directory.name) as temporary:
        _write(temporary, sources, key, config)
        for split, field in fields.items():
            _check_unchanged(field, sources[split], config, cache)
        _move_into_place(temporary, directory, key)


def _check_unchanged(field: str, source: Source, config: DataConfig, cache: Path) -> None:
    """What was read is what was hashed."""
    now = open_source(field, config, cache).key
    if now != source.key:
        before, after = (
            {tuple(file) for file in key.get("files", ())} for key in (source.key, now)
        )
        names = sorted({name for name, _ in before ^ after})
        raise ValueError(
            f'data.{field}="{getattr(config, field)}" changed while it was read'
            f"{': ' + names[0] if names else ''}; start again"
        )


def _move_into_place(temporary: Path, directory: Path, key: dict) -> None:
    with making(directory.parent, directory.name) as aside:
        if directory.exists() and _find(directory, key)[0] is None:
            with contextlib.suppress(FileNotFoundError):
                os.rename(directory, aside / "damaged")
        try:
            os.rename(temporary, directory)
        except OSError:
            if (
                _find(directory, key)[0] is None
            ):  # otherwise another process was first: no locks here
                raise


def _sha256(content: dict) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _describe(sources: dict[str, Source]) -> str:
    others = [f"{split}: {each.description}" for split, each in sources.items() if split != "train"]
    return "; ".join([sources["train"].description, *others])


def _write(directory: Path, sources: dict[str, Source], key: dict, config: DataConfig) -> None:
    """Write everything, meta.json last."""
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
    meta = {
        "source": _describe(sources),
        "key": key,
        "text_sha256": {split: spool.sha256 for split, spool in spools.items()},
        "tokenizer": tokenizer.identity(),
        "split_rule": rule,
        "splits": splits,
    }
    with open(directory / "meta.json", "w", encoding="utf-8") as file:
        json.dump(meta | {"sha256": _sha256(meta)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())


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
            for name, text in itertools.islice(documents, min(limit, sys.maxsize) or None):
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
