"""Sets of the Hugging Face hub: "hf:NAME/CONFIG", read through `datasets.load_dataset`.

    hf:NAME                 the set NAME, its only configuration hf:OWNER/NAME/CONFIG    unambiguous
    hf:A/B                  the configuration B of the set A; where there is none, the set B of the
    owner A hf:/FOLDER, hf:./FOLDER, hf:~/FOLDER    a data set in a local folder any of these +
    :SPLIT   that split instead of data.split, as in valid_source="hf:NAME/CONFIG:validation"

A hub set is known by its name: a token file made from it stays in use, also without network,
whatever changes on the hub later. Its meta.json holds the hash of the text; delete its folder to
read the hub again.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from data.files import row_text
from data.find import expand, hash_files


def parse_hub_name(value: str, default_split: str) -> tuple[str, str]:
    """(name, split) of "hf:NAME[:SPLIT]"."""
    name, _, split = value.removeprefix("hf:").partition(":")
    return name, split or default_split


def is_local(name: str) -> bool:
    """Whether the name is a folder of this machine."""
    return name.startswith(("/", "./", "../", "~"))


def hub_key(name: str, split: str, field: str) -> dict:
    """What identifies the text: the name, and for a local folder the content of its files."""
    key: dict = {"hub": name, "split": split}
    if is_local(name):
        key["files"] = hash_files(_local_files(name, f'{field}="hf:{name}"'))
    return key


def _local_files(name: str, where: str) -> list[tuple[str, Path]]:
    """(name, path) of each file, if `datasets` is going to read all of them."""
    root = Path(os.path.expanduser(name)).absolute()
    try:
        paths = list(expand(root, ("**",), hidden=True)) if root.is_dir() else []
    except OSError as error:
        raise ValueError(f'{where}: "{error.filename}" cannot be read: {error.strerror}') from None
    if not paths:
        raise ValueError(f"{where}: no such folder, or nothing in it")
    for path in paths:
        pattern = next((mark for mark in ("*", "?", "[", "::") if mark in str(path)), None)
        if pattern:
            raise ValueError(
                f'{where}: `datasets` takes the {pattern} in "{path}" for a pattern and may read another '
                "file; rename it, or give files:"
            )
    for folder in sorted({parent for path in paths for parent in path.parents}):
        if folder != root and folder.is_relative_to(root) and folder.is_symlink():
            raise ValueError(
                f'{where}: `datasets` leaves out the folder "{folder}", which is a link; give files:'
            )
    return sorted((path.relative_to(root).as_posix(), path) for path in paths)


def hub_documents(
    name: str, split: str, text_column: str, streaming: bool, field: str
) -> Iterator[tuple[str, bytes]]:
    """(name, text) of each row; a ValueError of one line says why a set could not be read."""
    rows = _load(name, split, streaming, field)
    number = 0
    rows = iter(rows)
    while True:
        try:
            row = next(rows)
        except StopIteration:
            return
        except Exception as error:
            raise _unreadable(name, field, [error]) from error
        number += 1
        yield f"{name}:{split}:{number}", row_text(row, text_column, f"{field}=hf:{name}")


def _load(name: str, split: str, streaming: bool, field: str):
    import datasets

    errors = []
    for reading in _readings(name, field):
        try:
            return datasets.load_dataset(*reading, split=split, streaming=streaming)
        except Exception as error:  # the hub client raises many kinds, not all of them public
            errors.append(error)
    raise _unreadable(name, field, errors) from errors[-1]


def _readings(name: str, field: str) -> list[tuple[str, ...]]:
    if is_local(name):
        return [(os.path.expanduser(name),)]
    parts = name.split("/")
    if not all(parts) or len(parts) > 3:
        raise ValueError(
            f'{field}="hf:{name}" should be hf:NAME, hf:NAME/CONFIG or hf:OWNER/NAME/CONFIG'
        )
    if os.path.isdir(name) or os.path.isdir(parts[0]):
        # `datasets` would silently read the folder instead of the hub.
        raise ValueError(
            f'{field}="hf:{name}" is also a folder here; write hf:./{name} for the folder'
        )
    if len(parts) == 3:
        return [("/".join(parts[:2]), parts[2])]
    return [tuple(parts)] if len(parts) == 1 else [tuple(parts), (name,)]


def _unreadable(name: str, field: str, errors: list[Exception]) -> ValueError:
    # Of two readings, the first failed as a configuration and the second as an owner: say both.
    reasons = [
        f"{type(error).__name__}: {(str(error).strip() or 'no reason given').splitlines()[0]}"
        for error in map(_root, errors)
    ]
    variables = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE")
    offline = [each for each in variables if os.environ.get(each, "0") not in ("", "0")]
    hint = ""
    if is_local(name):
        hint = _culprit(Path(os.path.expanduser(name)))
    elif offline:
        hint = f" ({offline[0]} is set, so only sets already on this machine can be read)"
    return ValueError(
        f'{field}="hf:{name}" could not be read{hint}: {"; ".join(dict.fromkeys(reasons))}'
    )


def _root(error: BaseException) -> BaseException:
    """The first of the errors that led to this one: `datasets` wraps it in ones that say nothing."""
    while error.__cause__:
        error = error.__cause__
    return error


def _culprit(folder: Path) -> str:
    """Which parquet file of the folder `datasets` can't read, in brackets; "" if it isn't one of them."""
    import pyarrow.parquet

    for path in sorted(expand(folder, ("**",))):
        if path.suffix == ".parquet":
            try:
                with open(path, "rb") as file:
                    rows = pyarrow.parquet.ParquetFile(file).metadata.num_rows
            except Exception:
                return f' ("{path}" is no whole parquet file)'
            if rows == 0:
                return f' ("{path}" has no rows, which `datasets` can\'t read; remove it, or give files:)'
    return ""
