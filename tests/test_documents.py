"""What the documents say is what the code does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import posenc
from configs import base, pi
from evaluation import read_records

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def python(*words):
    return subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, text=True)


def test_the_generated_parts_of_the_readme_are_up_to_date():
    done = python("docs/build.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_record_is_of_the_demo_as_it_is():
    """The README's figures come from runs of the length that the configs have now."""
    found = {
        r["run"].rsplit("/", 1)[-1]: r["step"]
        for r in read_records(ROOT / "docs/results/seven_schemes")
    }
    tuned = pi.get_config().train.steps
    assert found.pop("pi_tuned") == tuned and set(found.values()) == {base.get_config().train.steps}


def test_the_matrix_lists_every_scheme():
    done = python("-m", "posenc")
    assert done.returncode == 0, done.stderr
    names = [line.split()[0] for line in done.stdout.splitlines()[1:]]
    assert names == list(posenc.SCHEMES)
    assert all(cls.paper for cls in posenc.SCHEMES.values())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_commands_and_config_fields_that_documents_name_exist(document):
    text, config = document.read_text(encoding="utf-8"), base.get_config()
    for path in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (document.parent / path).exists(), path
    for path in re.findall(r"--config=(configs/[\w/]+\.py)", text):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"python ([\w/]+\.py)", text):
        assert (ROOT / path).exists(), path
    for section, field in re.findall(r"--config\.(model|data|train|mesh)\.(\w+)", text):
        assert field in config[section], f"{section}.{field}"


def test_commands_of_the_readme_are_targets():
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"^    make (\w+)", README, re.MULTILINE):
        assert target in targets
