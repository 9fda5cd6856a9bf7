"""Bytes in are bytes out, for both tokenizers and any bytes."""

import hashlib

import numpy as np
import pytest

import data.tokenizer
from data import load_tokenizer
from data.token_file import id_dtype, open_token_file, write_token_file
from data.tokenizer import BPE_PIECE, ByteTokenizer, check_tokenizer_name, train_bpe

PROSE = b"".join(b"the %d old sailors saw %d ships at sea\r\n" % (i, i * i) for i in range(3000))
HARD = [
    b"",
    b"\x00",
    b"ok\xff\x92ok2\n",
    b"a\r\nb\rc\n\n\r\n \t x",
    "é日本語 naïve \u2028 \u0085 \u00a0".encode(),
    bytes(range(256)) * 3,
]


@pytest.fixture(scope="module")
def bpe():
    return train_bpe("bpe:400", [PROSE])


@pytest.fixture(params=["byte", "bpe"])
def tokenizer(request):
    return ByteTokenizer() if request.param == "byte" else request.getfixturevalue("bpe")


def test_any_bytes_survive(tokenizer):
    noise = np.random.default_rng(0).integers(0, 256, 20000, np.uint8).tobytes()
    for text in [*HARD, noise, PROSE]:
        ids = tokenizer.encode(text)
        assert ids.dtype == np.int32
        assert tokenizer.decode(ids) == text
        assert tokenizer.token_bytes[ids].sum() == len(text)
        assert tokenizer.separator not in ids


def test_vocabulary(tokenizer, bpe):
    assert tokenizer.token_bytes.shape == (tokenizer.vocab_size,)
    assert tokenizer.token_bytes.dtype == np.int32
    assert tokenizer.token_bytes[tokenizer.separator] == 0
    assert (np.delete(tokenizer.token_bytes, tokenizer.separator) > 0).all()
    assert (ByteTokenizer().vocab_size, ByteTokenizer().separator) == (257, 256)
    assert (bpe.vocab_size, bpe.separator) == (400, 399)
    assert len(bpe.encode(PROSE)) < len(PROSE) / 2


def test_decode_drops_separators_and_refuses_unknown_ids(tokenizer):
    a, b = tokenizer.encode(b"one"), tokenizer.encode(b"two")
    assert tokenizer.decode([*a, tokenizer.separator, *b, tokenizer.separator]) == b"onetwo"
    for wrong in (-1, tokenizer.vocab_size):
        with pytest.raises(ValueError, match=f"token id {wrong} is outside the vocabulary"):
            tokenizer.decode([wrong])


def test_encode_wants_bytes(tokenizer):
    with pytest.raises(TypeError, match="bytes"):
        tokenizer.encode("text")


def test_training_is_deterministic_and_sees_only_its_text(bpe):
    assert train_bpe("bpe:400", [PROSE]).identity() == bpe.identity()
    assert train_bpe("bpe:400", [PROSE + b"another tail another tail"]).sha256 != bpe.sha256


@pytest.mark.parametrize("kind", ["words", "one line", "white space"])
def test_pieces_change_no_token(bpe, monkeypatch, kind):
    """A long text is encoded in pieces, which gives the tokens that one piece would."""
    if kind == "one line":
        text = PROSE.replace(b"\r\n", b" ") * 2
    else:
        text = PROSE * 2 if kind == "words" else PROSE[:100] + b" \n" * BPE_PIECE + PROSE
    in_pieces = bpe.encode(text)
    monkeypatch.setattr(data.tokenizer, "BPE_PIECE", len(text))
    whole = bpe.encode(text)
    if kind == "white space":  # no place to cut: lossless all the same
        assert bpe.decode(in_pieces) == text
    else:
        np.testing.assert_array_equal(in_pieces, whole)


def test_huge_line(tokenizer, monkeypatch):
    """One line without any white space, longer than several pieces, in bounded parts."""
    monkeypatch.setattr(data.tokenizer, "BYTE_PIECE", BPE_PIECE)
    monkeypatch.setattr(data.tokenizer, "BPE_PIECES", 2)
    text = b"abcdefgh" * (BPE_PIECE // 2)
    parts = list(tokenizer.pieces(text))
    assert len(parts) >= 2 and max(map(len, parts)) <= BPE_PIECE * 2
    assert tokenizer.decode(np.concatenate(parts)) == text


def test_save_and_load(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    tokenizer.save(path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == tokenizer.sha256
    for place in (path, tmp_path):
        loaded = load_tokenizer(tokenizer.identity(), place)
        assert loaded.identity() == tokenizer.identity()
        np.testing.assert_array_equal(loaded.encode(PROSE[:500]), tokenizer.encode(PROSE[:500]))


def test_load_refuses_another_tokenizer(bpe, tmp_path):
    train_bpe("bpe:300", [PROSE]).save(tmp_path / "other.json")
    with pytest.raises(ValueError, match="sha256"):
        load_tokenizer(bpe.identity(), tmp_path / "other.json")
    with pytest.raises(ValueError, match="missing"):
        load_tokenizer(bpe.identity(), tmp_path / "none.json")
    with pytest.raises(ValueError, match="needed"):
        load_tokenizer(bpe.identity())
    with pytest.raises(ValueError, match="mismatch"):
        load_tokenizer(ByteTokenizer().identity() | {"separator": 0})


@pytest.mark.parametrize("identity", [None, [], {}, {"name": "byte"}, {"sha256": "0"}])
def test_an_identity_that_lacks_something_is_refused(identity):
    with pytest.raises(ValueError, match="no tokenizer is known by"):
        load_tokenizer(identity)


@pytest.mark.parametrize("content", ["junk", "{}", "[" * 10000, '{"model": {"type": "BPE"}}'])
def test_a_saved_file_that_is_no_tokenizer_is_refused(bpe, tmp_path, content):
    (tmp_path / "t.json").write_text(content)
    sha256 = hashlib.sha256(content.encode()).hexdigest()
    with pytest.raises(ValueError, match="bpe:400: its saved file is no tokenizer"):
        load_tokenizer(bpe.identity() | {"sha256": sha256}, tmp_path / "t.json")


@pytest.mark.parametrize(
    "size", ["256", "1048577", "4000000000", "9" * 5000, "", "-300", "3e3", "٣٠٠"]
)
def test_a_vocabulary_is_bounded(size):
    """The library ends the process where the memory that it takes beforehand is lacking."""
    with pytest.raises(ValueError, match="data.tokenizer=.* 257 or more, 1048576 at most"):
        check_tokenizer_name(f"bpe:{size}")
    assert check_tokenizer_name("bpe:257") == 257 and check_tokenizer_name("bpe:1048576") == 1 << 20


def test_words_of_letters_beyond_ascii_are_whole():
    """Bytes of 128 and more are merged with one another, not with ASCII letters."""
    bpe = train_bpe("bpe:269", ["naïve слово ".encode() * 50])
    assert len(bpe.encode("слово".encode())) == 1
    assert [bpe.decode([i]) for i in bpe.encode(" naïve".encode())] == [b" na", "ï".encode(), b"ve"]


def test_what_stands_once_is_not_merged():
    with pytest.raises(ValueError, match='gives only 257 tokens; use "bpe:257"'):
        train_bpe("bpe:260", [b"abcdefgh"])


def test_too_little_text_for_the_vocabulary():
    with pytest.raises(ValueError, match=r'use "bpe:\d+" or fewer'):
        train_bpe("bpe:4096", [b"a small text, a small text"])


def test_dtype_holds_the_largest_id():
    assert [id_dtype(n) for n in (256, 257, 65536, 65537, 70000)] == [
        np.uint8,
        np.uint16,
        np.uint16,
        np.uint32,
        np.uint32,
    ]


class LargeVocabulary:
    """Each byte b is the id 69000 + b; 69999 separates."""

    vocab_size, separator = 70000, 69999
    token_bytes = np.ones(70000, np.int32)

    def pieces(self, text):
        yield np.frombuffer(text, np.uint8).astype(np.int32) + 69000


def test_vocabulary_of_70000_round_trips(tmp_path):
    counts = write_token_file(tmp_path, "train", [("a", b"\xff\x00")], LargeVocabulary())
    file = open_token_file(tmp_path, "train", counts)
    assert file.tokens.dtype == np.uint32
    assert file.tokens.tolist() == [69255, 69000, 69999]


def test_ids_outside_the_vocabulary_and_lost_text_are_refused(tmp_path):
    tokenizer = LargeVocabulary()
    tokenizer.vocab_size = 69100
    with pytest.raises(ValueError, match="token id 69255 is outside the vocabulary of 69100"):
        write_token_file(tmp_path, "train", [("a", b"\xff")], tokenizer)
    tokenizer = ByteTokenizer()
    tokenizer.pieces = lambda text: [np.zeros(len(text) - 1, np.int32)]
    with pytest.raises(ValueError, match="b: its tokens stand for 3 bytes of 4"):
        write_token_file(tmp_path, "train", [("b", b"four")], tokenizer)
