"""From the text of `data.source` to documents."""

import dataclasses
import importlib.metadata
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

from data import hub, shakespeare, synthetic
from data.config import DataConfig
from data.files import file_documents
from data.find import find_files, hash_files


@dataclasses.dataclass(frozen=True)
class Source:
    """One text, opened but not read."""

    description: str  # one line for people
    key: dict  # identifies the text, ready for JSON
    documents: Callable[[], Iterator[tuple[str, bytes]]]  # (name, text) of each
    paths: frozenset[str] = frozenset()  # local files it reads
    valid_names: tuple[str, ...] = ()  # documents to set aside, where they are fixed by name
    test_names: tuple[str, ...] = ()


def open_source(field: str, config: DataConfig, cache: Path) -> Source:
    """The source that `data.FIELD` names. Errors name the field; another source is never tried."""
    value, where = getattr(config, field), f"data.{field}"
    kind, _, rest = value.partition(":")
    match kind:
        case "shakespeare":
            return Source(
                description=shakespeare.DESCRIPTION,
                key={
                    "shakespeare": shakespeare.SHA256,
                    "set_aside": [shakespeare.VALID_WORKS, shakespeare.TEST_WORKS],
                },
                documents=lambda: shakespeare.shakespeare_documents(cache, where),
                valid_names=shakespeare.VALID_WORKS,
                test_names=shakespeare.TEST_WORKS,
            )
        case "files":
            return _files_source(value, rest, where, config)
        case "hf":
            name, split = hub.parse_hub_name(value, config.split)
            return Source(
                description=f"Hugging Face set {name}, split {split}, column {config.text_column}",
                key=hub.hub_key(name, split, where) | {"column": config.text_column},
                documents=lambda: hub.hub_documents(
                    name, split, config.text_column, config.streaming, where
                ),
            )
        case "jax_source":
            return _jax_source()
        case _:
            description, key = synthetic.describe(rest)
            return Source(
                description=description,
                key=key,
                documents=lambda: synthetic.synthetic_documents(rest),
            )


def _files_source(value: str, pattern: str, where: str, config: DataConfig) -> Source:
    files = find_files(pattern, f'{where}="{value}"')
    return Source(
        description=f"{len(files)} local file{'s' if len(files) > 1 else ''}: {pattern}",
        key={"files": hash_files(files), "column": config.text_column},
        documents=lambda: file_documents(files, config.text_column),
        paths=frozenset(str(path.resolve()) for _, path in files),
    )


def _jax_source() -> Source:
    # find_spec, because importing jax takes a second and only the place of its files is needed
    folder = importlib.util.find_spec("jax").submodule_search_locations[0]
    files = find_files(folder, 'data.source="jax_source"', (".py",))
    version = importlib.metadata.version("jax")
    return Source(
        description=f"Python source of the installed jax {version} ({len(files)} files)",
        key={"jax_source": hash_files(files)},
        documents=lambda: file_documents(files, "text"),
    )
