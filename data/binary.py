"""Bytes that are no text, told by how they begin or by a byte 0, whatever the file's name says."""

from pathlib import Path

REACH = 264  # bytes of the beginning that the signatures stand in
# (place, bytes, what it is). Those that are readable letters go on to where no text would.
SIGNATURES = (
    (0, b"\x1f\x8b", "gzip data"),
    (0, b"\x1f\x9d", "compress data"),
    (0, b"\x28\xb5\x2f\xfd", "zstd data"),
    (0, b"\x04\x22\x4d\x18", "lz4 data"),
    (0, b"\xfd7zXZ\x00", "xz data"),
    *((0, b"BZh%d1AY&SY" % level, "bzip2 data") for level in range(1, 10)),
    (0, b"PK\x03\x04", "a zip archive"),
    (0, b"PK\x05\x06", "a zip archive"),
    (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (0, b"Rar!\x1a\x07", "a rar archive"),
    (257, b"ustar", "a tar archive"),
    (0, b"ARROW1\x00\x00", "an Arrow file"),
    (0, b"PAR1\x15", "parquet without the ending .parquet"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"\x89HDF\r\n\x1a\n", "HDF5"),
    *((0, b"\x80" + bytes([version]), "a Python pickle") for version in (2, 3, 4, 5)),
    (0, b"SQLite format 3\x00", "an SQLite database"),
    (0, b"%PDF-", "PDF"),
    (0, b"\x7fELF", "a program"),
    (0, b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (0, b"\xff\xd8\xff", "a JPEG image"),
    (0, b"GIF87a", "a GIF image"),
    (0, b"GIF89a", "a GIF image"),
    (8, b"WEBPVP8", "a WebP image"),
    (0, b"\xff\xfe", "UTF-16 text"),
    (0, b"\xfe\xff", "UTF-16 text"),
)
CONVERT = "; text is UTF-8 here: convert it with `iconv -f UTF-16 -t UTF-8`"


def refuse_binary(path: Path, beginning: bytes) -> None:
    """ValueError naming `path` if its first bytes, `REACH` or more, are those of a known format."""
    for place, signature, what in SIGNATURES:
        if beginning.startswith(signature, place):
            hint = CONVERT if what.startswith("UTF-16") else "; give txt, jsonl or parquet files"
            raise ValueError(f'"{path}" is {what}, not text{hint}')


def refuse_zero(path: Path, text: bytes) -> None:
    """ValueError naming `path` if the whole text holds a byte 0, as text in no encoding of bytes does.

    Bytes that are not UTF-8 are text all the same; a zero in a string of JSON or parquet is, too.
    """
    place = text.find(b"\x00")
    if place >= 0:
        nearby = text[max(0, place - 64) : place + 64]
        wide = len(nearby) > 2 and nearby.count(0) * 3 > len(nearby)
        hint = f" (UTF-16 text?{CONVERT[1:]})" if wide else ""
        raise ValueError(f'"{path}" is not text: its byte {place + 1} is 0{hint}')
