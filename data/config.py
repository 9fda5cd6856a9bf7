"""The fields of `data.*`, checked before anything is read."""

import dataclasses
import os

from data.synthetic import parse_task, weights_of
from data.tokenizer import check_tokenizer_name

SOURCES = "shakespeare, files:PATH_OR_GLOB, hf:NAME/CONFIG, jax_source or synthetic:TASK[:LENGTH]"


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """What text to use and how; the defaults live in configs/base.py."""

    source: str  # where the training text comes from, see SOURCES
    valid_source: str  # text for valid_loss; "" sets whole documents of `source` aside
    test_source: str  # text for the evaluation; "" sets whole documents of `source` aside
    tokenizer: str  # "byte" or "bpe:SIZE", SIZE counting the separator
    cache_dir: str  # folder for downloads and token files
    isolate_documents: bool  # attention and positions stop at document ends
    text_column: str  # column of jsonl, parquet and hub rows that holds the text
    split: str  # split of hub sets, unless the source names its own
    streaming: bool  # read hub sets row by row instead of downloading them first
    max_documents: int  # use this many documents at most of each source; 0 for all

    def __post_init__(self):
        for field in ("source", "valid_source", "test_source"):
            value = getattr(self, field)
            if not isinstance(value, str):
                raise ValueError(f"data.{field}={value!r} should be text: {SOURCES}")
            if value or field == "source":
                _check_source(field, value)
            if ":" in value:
                object.__setattr__(self, field, anywhere(value))
        for field in ("valid_source", "test_source"):
            if getattr(self, field) == self.source:
                raise ValueError(
                    f'data.{field}="{self.source}" is the training source itself; '
                    "leave it empty to set documents aside"
                )
        if self.valid_source and self.valid_source == self.test_source:
            raise ValueError(
                f'data.test_source="{self.test_source}" is the validation text, which chooses the best checkpoint'
            )
        check_tokenizer_name(self.tokenizer)
        for field in ("cache_dir", "text_column", "split"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value:
                raise ValueError(f"data.{field}={value!r} should be a non-empty text")
        try:
            possible = b"\0" not in os.fsencode(self.cache_dir)
        except UnicodeError:
            possible = False
        if not possible:
            raise ValueError(f"data.cache_dir={self.cache_dir!r} can't be the name of a folder")
        object.__setattr__(self, "cache_dir", anywhere(self.cache_dir))
        for field in ("isolate_documents", "streaming"):
            if not isinstance(getattr(self, field), bool):
                raise ValueError(f"data.{field}={getattr(self, field)!r} should be True or False")
        for value in (self.source, self.valid_source, self.test_source):
            if value and weights_of(value) and self.tokenizer != "byte":
                raise ValueError(
                    f'data.tokenizer="{self.tokenizer}" would cut the examples of "{value}": give "byte"'
                )
        limit = self.max_documents
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
            raise ValueError(
                f"data.max_documents={limit!r} should be 0 (all) or a positive integer"
            )
        sources = [value for value in (self.source, self.valid_source, self.test_source) if value]
        if self.streaming and not any(value.startswith("hf:") for value in sources):
            raise ValueError(
                f'data.streaming=True needs an hf: source, and data.source="{self.source}" is none'
            )
        if limit and self.source == "shakespeare":
            raise ValueError(
                f"data.max_documents={limit} does not apply to data.source='shakespeare'"
            )


def _check_source(field: str, value: str) -> None:
    kind, colon, rest = value.partition(":")
    if value in ("shakespeare", "jax_source"):
        return
    if kind in ("files", "hf") and rest:
        return
    if kind == "synthetic" and colon:
        try:
            parse_task(rest)
        except ValueError as error:
            raise ValueError(f'data.{field}="{value}": {error}') from None
        return
    raise ValueError(f'data.{field}="{value}" is no source; give {SOURCES}')


def anywhere(value: str) -> str:
    """A source or folder that means the same from every working directory: relative paths made absolute."""
    kind, colon, path = value.partition(":")
    if colon and kind == "files":
        return f"files:{anywhere(path)}"
    if colon and (kind != "hf" or not path.startswith(".")):
        return value
    if colon:
        return f"hf:{os.path.abspath(path)}"
    return value if value.startswith(("~", "/")) else os.path.abspath(value)
