"""Local text: txt, jsonl and parquet files, bytes and newlines as they are.

A txt file is one document. A row of jsonl or parquet is one document, the text of its `text_column`
in UTF-8; null is an empty document. A folder stands for its .txt, .jsonl and .parquet files at any
depth, hidden ones excepted, in the order of their relative paths. A file that is named, or matched
by a glob, is text whatever its ending, unless it is jsonl, parquet, or plainly something else
(compressed, .json).
"""

import glob
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

SUFFIXES = (".txt", ".jsonl", ".parquet")
REFUSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".tar", ".json")


def find_files(
    pattern: str, field: str, suffixes: tuple[str, ...] = SUFFIXES
) -> list[tuple[str, Path]]:
    """(name, path) of each file that a path, folder or glob means; names are relative."""
    text = os.path.expanduser(pattern)
    if os.path.isdir(text):
        root = Path(text)
        paths = [
            path for path in root.rglob("*") if path.suffix.lower() in suffixes and path.is_file()
        ]
        paths = [
            path
            for path in paths
            if not any(part.startswith(".") for part in path.relative_to(root).parts)
        ]
        if not paths:
            raise ValueError(f'{field}: the folder "{pattern}" holds no {", ".join(suffixes)} file')
    else:
        found = [text] if os.path.isfile(text) else glob.glob(text, recursive=True)
        paths = [Path(path) for path in found if os.path.isfile(path)]
        if not paths:
            raise ValueError(f'{field}: no file matches "{pattern}"')
        root = Path(os.path.commonpath([path.absolute().parent for path in paths]))
    named = {path.absolute().relative_to(root.absolute()).as_posix(): path for path in paths}
    for path in paths:
        if path.suffix.lower() in REFUSED:
            raise ValueError(f'{field}: "{path}" is not text; give txt, jsonl or parquet files')
    return sorted(named.items())


def hash_files(files: list[tuple[str, Path]]) -> list[list[str]]:
    """[name, sha256 of the content] of each file."""
    hashes = []
    for name, path in files:
        with open(path, "rb") as file:
            hashes.append([name, hashlib.file_digest(file, "sha256").hexdigest()])
    return hashes


def file_documents(files: list[tuple[str, Path]], text_column: str) -> Iterator[tuple[str, bytes]]:
    """(name, text) of each document; a row is named FILE:NUMBER, counted from 1."""
    for name, path in files:
        match path.suffix.lower():
            case ".jsonl":
                yield from _jsonl_documents(name, path, text_column)
            case ".parquet":
                yield from _parquet_documents(name, path, text_column)
            case _:
                yield name, path.read_bytes()


def read_text_documents(path_or_glob: str, text_column: str) -> list[tuple[str, bytes]]:
    """(name, text) of each document of a path, folder or glob, read as "files:" is."""
    files = find_files(path_or_glob, f'text="{path_or_glob}"')
    return list(file_documents(files, text_column))


def row_text(row: dict, text_column: str, where: str) -> bytes:
    """The bytes of one row's text; ValueError naming `where` and the columns there are."""
    if text_column not in row:
        columns = ", ".join(map(str, row)) or "none"
        raise ValueError(
            f'data.text_column="{text_column}" is not in {where}; its columns: {columns}'
        )
    text = row[text_column]
    if text is None:
        return b""
    if isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise ValueError(
            f'data.text_column="{text_column}" holds {type(text).__name__}, not text, in {where}'
        )
    return text.encode(
        "utf-8", "surrogatepass"
    )  # JSON may hold half a surrogate pair: kept, not dropped


def _jsonl_documents(name: str, path: Path, text_column: str) -> Iterator[tuple[str, bytes]]:
    # Not through `datasets`, whose JSON reader turns texts that look like dates into dates.
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}:{number}: byte {error.start + 1} of the line is not UTF-8"
                ) from None
            except json.JSONDecodeError as error:
                raise ValueError(f"{path}:{number}: not JSON: {error}") from None
            if not isinstance(row, dict):
                raise ValueError(
                    f"{path}:{number}: a row should be a JSON object, not {type(row).__name__}"
                )
            yield f"{name}:{number}", row_text(row, text_column, f"{path}:{number}")


def _parquet_documents(name: str, path: Path, text_column: str) -> Iterator[tuple[str, bytes]]:
    import datasets

    # Streaming, or `datasets` would first make a second copy of the file in its own cache.
    rows = datasets.load_dataset(
        "parquet", data_files=str(path.absolute()), split="train", streaming=True
    )
    for number, row in enumerate(rows, 1):
        yield f"{name}:{number}", row_text(row, text_column, str(path))
