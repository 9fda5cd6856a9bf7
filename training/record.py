"""What a run writes of itself, and reads again: its config.json."""

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

import jax

import data
import posenc
from data.tokenizer import check_tokenizer_name
from training.config import RunConfig, read_json

# What runs did before a field was there, for a config.json that lacks it.
BEFORE = {"mesh": {"distributed": False}}

# What stands in a config.json beside the settings, and the types of what is read from it again.
BESIDE = ("config_hash", "train_length", "tokenizer", "corpus", "parent", "provenance")
READ = {
    "tokenizer": {"name": str, "sha256": str, "vocab_size": int, "separator": int},
    "corpus": {"key": dict},
    "parent": {
        "run": str, "step": int, "config_hash": str, "position": str, "original_length": int,
    },
}  # fmt: skip


def make_record(config: RunConfig, corpus: data.Corpus, origin: dict | None) -> dict:
    """config.json: the settings, and what it takes to read the run's checkpoints and to know where they came from."""
    packages = ("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
    return {
        **config.to_dict(),
        "config_hash": config.hash(),
        "train_length": config.train.length,
        "tokenizer": corpus.tokenizer.identity(),
        "corpus": corpus.meta,
        "parent": origin,
        "provenance": {
            "git_revision": git_revision(),
            "python": platform.python_version(),
            "packages": {name: version(name) for name in packages},
            "devices": [device.device_kind for device in jax.devices()],
        },
    }


def git_revision() -> str | None:
    """The commit this code is at, with "+changes" if files differ from it; None outside a repository."""
    here = Path(__file__).parent

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], cwd=here, capture_output=True, text=True, timeout=20, check=True
        )
        return done.stdout.strip()

    try:
        return git("rev-parse", "HEAD") + ("+changes" if git("status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def read_record(path: Path) -> tuple[dict, RunConfig]:
    """A run's config.json, and the settings in it. ValueError names the file, and the field that is not right."""
    record = read_json(path)
    try:
        for section, types in READ.items():
            if section not in record:
                raise ValueError(f"{section} is missing")
            if record[section] is not None or section != "parent":
                check_types(section, record[section], types)
        check_values(record)
        return record, run_config(record)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def check_types(section: str, values, types: dict[str, type]) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"{section}={values!r} must be a group of fields")
    for name, expected in types.items():
        if name not in values:
            raise ValueError(f"{section}.{name} is missing")
        if not isinstance(values[name], expected) or isinstance(values[name], bool):
            raise ValueError(
                f"{section}.{name}={values[name]!r} must be of type {expected.__name__}"
            )


def check_values(record: dict) -> None:
    """What only a damaged record has, and would be met later as something else."""
    tokenizer, parent = record["tokenizer"], record["parent"]
    if tokenizer["vocab_size"] != check_tokenizer_name(tokenizer["name"]):
        raise ValueError(
            f"tokenizer.vocab_size={tokenizer['vocab_size']} is not that of {tokenizer['name']}"
        )
    if parent:
        posenc.parse_pattern(parent["position"])
        settings = parent.get("settings", {})
        if not isinstance(settings, dict):
            raise ValueError(f"parent.settings={settings!r} must be a group of fields")
        try:
            run_config(settings or record)
        except ValueError as error:
            raise ValueError(f"parent.settings: {error}") from None
        for name, least in (("step", 0), ("original_length", 1)):
            if parent[name] < least:
                raise ValueError(f"parent.{name}={parent[name]} must be at least {least}")


def run_config(record: dict) -> RunConfig:
    """The settings that a config.json records, without what stands beside them."""
    settings = {name: value for name, value in record.items() if name not in BESIDE}
    for section, earlier in BEFORE.items():
        if isinstance(settings.get(section), dict):
            settings[section] = {**earlier, **settings[section]}
    return RunConfig.from_config(settings, recorded=True)
