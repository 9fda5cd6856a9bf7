"""Raw text -> token file -> batches and evaluation windows.

    source --prepare--> token files (train, valid, test) --Batches--> training batches
                                                         --disjoint_windows--> evaluation windows

Text is bytes throughout: nothing decodes, normalises or strips it. `documents` are the units that
are kept apart: a play, a file, a row. Every document is followed by exactly one separator in the
token stream.

A file that is named is the one that is read (find.py), what is no text is refused (binary.py), and
token files are used only as they were written, to the bit (corpus.py, token_file.py, cache.py).
"""

from data.batches import Batches, batch_hash
from data.config import DataConfig
from data.corpus import Corpus, prepare
from data.files import read_text_documents
from data.synthetic import weights_of
from data.token_file import TokenFile
from data.tokenizer import Tokenizer, load_tokenizer
from data.windows import disjoint_windows

__all__ = [
    "Batches",
    "Corpus",
    "DataConfig",
    "TokenFile",
    "Tokenizer",
    "batch_hash",
    "disjoint_windows",
    "load_tokenizer",
    "prepare",
    "read_text_documents",
    "weights_of",
]
