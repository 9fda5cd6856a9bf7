"""Local text: txt, jsonl and parquet files, bytes and newlines as they are.

A txt file is one document. A row of jsonl (.jsonl, .ndjson) or parquet is one document, the text of
its `text_column` in UTF-8; null is an empty document. A folder stands for its .txt, .jsonl, .ndjson
and .parquet files at any depth, hidden ones excepted, in the order of their relative paths
(data/find.py). A file that is named, or matched by a glob, is text whatever its ending, unless it is
jsonl or parquet. What is plainly something else, by its ending (compressed, .json), its first bytes
or a byte 0, is refused by name (data/binary.py).
"""

import json
from collections.abc import Iterator
from pathlib import Path

from data.binary import REACH, refuse_binary, refuse_zero
from data.find import find_files, reading

ROWS = 1024  # of parquet, held in memory at a time


def file_documents(files: list[tuple[str, Path]], text_column: str) -> Iterator[tuple[str, bytes]]:
    """(name, text) of each document; a row is named FILE:NUMBER, counted from 1."""
    for name, path in files:
        match path.suffix.lower():
            case ".jsonl" | ".ndjson":
                yield from _jsonl_documents(name, path, text_column)
            case ".parquet":
                yield from _parquet_documents(name, path, text_column)
            case _:
                with reading(path) as file:
                    text = file.read()
                refuse_binary(path, text[:REACH])
                refuse_zero(path, text)
                yield name, text


def read_text_documents(path_or_glob: str, text_column: str) -> list[tuple[str, bytes]]:
    """(name, text) of each document of a path, folder or glob, read as "files:" is."""
    files = find_files(path_or_glob, f'text="{path_or_glob}"')
    return list(file_documents(files, text_column))


def row_text(row: dict, text_column: str, where: str) -> bytes:
    """The bytes of one row's text; ValueError naming `where` and the columns there are."""
    if text_column not in row:
        raise _no_column(text_column, row, where)
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


def _no_column(text_column: str, columns, where: str) -> ValueError:
    there = ", ".join(map(str, columns)) or "none"
    return ValueError(f'data.text_column="{text_column}" is not in {where}; its columns: {there}')


def _jsonl_documents(name: str, path: Path, text_column: str) -> Iterator[tuple[str, bytes]]:
    # Not through `datasets`, whose JSON reader turns texts that look like dates into dates.
    with reading(path) as file:
        refuse_binary(path, file.peek(REACH))
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line.decode("utf-8"))
            except UnicodeDecodeError as error:
                raise ValueError(
                    f"{path}:{number}: byte {error.start + 1} of the line is not UTF-8"
                ) from None
            except (ValueError, RecursionError) as error:  # too long a number, too deep a list
                raise ValueError(f"{path}:{number}: not JSON: {error}") from None
            if not isinstance(row, dict):
                raise ValueError(
                    f"{path}:{number}: a row should be a JSON object, not {type(row).__name__}"
                )
            yield f"{name}:{number}", row_text(row, text_column, f"{path}:{number}")


def _parquet_documents(name: str, path: Path, text_column: str) -> Iterator[tuple[str, bytes]]:
    # Not through `datasets`, which reads a path as a pattern and may find another file.
    number = 0
    for texts in _parquet_texts(path, text_column):
        for text in texts:
            number += 1
            yield f"{name}:{number}", row_text({text_column: text}, text_column, str(path))


def _parquet_texts(path: Path, text_column: str) -> Iterator[list]:
    """The column in lists of at most `ROWS`: bytes and None, or what is no text."""
    import pyarrow
    import pyarrow.parquet

    columns: list[str] = []
    try:
        # An open file, for pyarrow too gives some paths a meaning of its own.
        with (
            open(path, "rb") as file,
            pyarrow.parquet.ParquetFile(file, page_checksum_verification=True) as parquet,
        ):
            columns = parquet.schema_arrow.names
            if text_column in columns:
                for batch in parquet.iter_batches(ROWS, columns=[text_column]):
                    yield _plain(batch.column(text_column))
    except Exception as error:  # pyarrow raises many kinds for what is broken, without a name
        raise ValueError(f'"{path}" cannot be read as parquet: {error}') from error
    if text_column not in columns:
        raise _no_column(text_column, columns, str(path))


def _plain(texts) -> list:
    """A pyarrow array as a list, its strings as bytes: some are not UTF-8."""
    import pyarrow

    kind = texts.type
    kind = kind.value_type if pyarrow.types.is_dictionary(kind) else kind
    if kind in (pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()):
        texts = texts.cast(pyarrow.large_binary())
    return texts.to_pylist()
