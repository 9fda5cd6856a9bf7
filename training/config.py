"""A run's configuration: ConfigDict at the edge, frozen dataclasses inside, plain JSON on disk."""

import dataclasses
import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path

import jax
from flax import nnx

from data import DataConfig
from data.synthetic import task_of
from models import ModelConfig
from posenc import create_layers, did_you_mean, format_pattern, parse_pattern

# What may differ when a run is continued; everything else must be as it was.
MAY_CHANGE = (
    "train.steps",
    "train.stop_at",
    "train.log_every",
    "train.eval_every",
    "train.save_every",
    "train.keep",
    "data.cache_dir",
    "model.remat",
    "mesh.data",
    "mesh.fsdp",
    "mesh.distributed",
)


@dataclasses.dataclass(frozen=True)
class TrainConfig:
    """The fields of `config.train`; units stand in configs/base.py."""

    steps: int
    stop_at: int
    batch_size: int
    length: int
    accumulate: int
    learning_rate: float
    schedule: str
    warmup_steps: int
    decay_steps: int
    final_fraction: float
    beta1: float
    beta2: float
    weight_decay: float
    grad_clip: float
    log_every: int
    eval_every: int
    eval_windows: int
    save_every: int
    keep: int

    def __post_init__(self):
        def check(fits: bool, name: str, what: str) -> None:
            if not fits:
                raise ValueError(f"train.{name}={getattr(self, name)!r} must be {what}")

        for name in ("steps", "batch_size", "length", "accumulate", "log_every", "keep"):
            check(getattr(self, name) >= 1, name, "at least 1")
        for name in ("stop_at", "warmup_steps", "eval_every", "eval_windows", "save_every"):
            check(getattr(self, name) >= 0, name, "at least 0")
        check(self.steps < 2**31, "steps", "below 2^31, for steps are counted in 32 bits")
        for name in ("learning_rate", "weight_decay"):
            check(getattr(self, name) < 3e38, name, "a number that 32 bits hold")
        check(self.learning_rate >= 0, "learning_rate", "at least 0")
        check(self.weight_decay >= 0, "weight_decay", "at least 0")
        check(self.grad_clip >= 0, "grad_clip", "at least 0 (0: no clipping)")
        check(0 <= self.final_fraction <= 1, "final_fraction", "between 0 and 1")
        for name in ("beta1", "beta2"):
            check(0 <= getattr(self, name) < 1, name, "at least 0 and below 1")
        check(self.schedule in ("cosine", "constant", "wsd"), "schedule", "cosine, constant or wsd")
        check(
            self.batch_size % self.accumulate == 0,
            "accumulate",
            f"a divisor of train.batch_size={self.batch_size}",
        )
        check(self.warmup_steps <= self.steps, "warmup_steps", f"at most train.steps={self.steps}")
        if self.schedule == "wsd":
            room = self.steps - self.warmup_steps
            check(1 <= self.decay_steps <= room, "decay_steps", f"1 to {room} with schedule=wsd")
        else:
            check(self.decay_steps == 0, "decay_steps", "0: only schedule=wsd reads it")


@dataclasses.dataclass(frozen=True)
class MeshConfig:
    """The fields of `config.mesh`."""

    data: int
    fsdp: int
    distributed: bool

    def __post_init__(self):
        if self.data < 0:
            raise ValueError(f"mesh.data={self.data} must be at least 0 (0: all devices)")
        if self.fsdp < 1:
            raise ValueError(f"mesh.fsdp={self.fsdp} must be at least 1")


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """All of a run's settings. `model` is completed into a ModelConfig once the vocabulary is known."""

    seed: int
    position: str
    model: dict
    data: DataConfig
    train: TrainConfig
    mesh: MeshConfig

    @classmethod
    def from_config(cls, config: Mapping, recorded: bool = False) -> "RunConfig":
        """From a ConfigDict, or the settings in a config.json (`recorded`). ValueError names what does not fit."""
        config = config.to_dict() if hasattr(config, "to_dict") else dict(config)
        check_names("", config, names_of(cls), recorded)
        sections = {"data": DataConfig, "train": TrainConfig, "mesh": MeshConfig}
        for name, known in {"model": ModelConfig, **sections}.items():
            if not isinstance(config[name], Mapping):
                raise ValueError(f"{name}={config[name]!r} must be a group of fields")
            check_names(f"{name}.", config[name], names_of(known), recorded)
        return cls(
            seed=config["seed"],
            position=canonical(config["position"]),
            model=dict(config["model"]),
            **{name: section(name, known, config[name]) for name, known in sections.items()},
        ).checked()

    def checked(self) -> "RunConfig":
        """Refuse before anything is prepared what could only fail later: the model's sizes, the scheme's options."""
        seed = self.seed
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**32:
            raise ValueError(f"seed={seed!r} must be a whole number, at least 0 and below 2^32")
        for field in ("source", "valid_source"):
            source = getattr(self.data, field)
            task, length = task_of(source)
            if length and length != self.train.length:
                raise ValueError(
                    f'data.{field}="{source}" makes examples for train.length={length}, and windows of '
                    f'{self.train.length} would cut them: give "synthetic:{task}:{self.train.length}"'
                )
        self.model_config(vocab_size=1)
        return self

    def model_config(self, vocab_size: int) -> ModelConfig:
        """The model's settings; ValueError names a field, scheme or option that does not fit."""
        derived = {
            "position": self.position,
            "vocab_size": vocab_size,
            "train_length": self.train.length,
        }
        config = section("model", ModelConfig, {**self.model, **derived})

        def create() -> None:
            create_layers(self.position, config.dims, config.num_layers, nnx.Rngs(0))

        jax.eval_shape(create)  # takes no memory for sizes that may be a mistake
        return config

    def to_dict(self) -> dict:
        """Plain values, ready for JSON; `from_config` reads it back."""
        return dataclasses.asdict(self)

    def hash(self) -> str:
        """Twelve hexadecimal digits that stand for the experiment: equal for runs that differ in their seed only.

        What may change between two sittings of a run is left out, but for the number of steps.
        """
        settings = flat(self.to_dict())
        for name in ("seed", *MAY_CHANGE):
            if name != "train.steps":
                del settings[name]
        text = json.dumps(settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def differences(self, earlier: "RunConfig") -> list[str]:
        """The fields that keep this run from continuing `earlier`, each with both values."""
        now, then = flat(self.to_dict()), flat(earlier.to_dict())
        return [
            f"{name} was {then.get(name)!r} and is {now.get(name)!r}"
            for name in {**then, **now}
            if name not in MAY_CHANGE and then.get(name) != now.get(name)
        ]


def canonical(position) -> str:
    """The one-line spelling of a scheme, its options in alphabetical order."""
    pattern = parse_pattern(position)
    return format_pattern([[(n, dict(sorted(o.items()))) for n, o in parts] for parts in pattern])


# What ModelConfig has beside the fields of `config.model`; see RunConfig.model_config.
DERIVED = ("position", "vocab_size", "train_length")


def names_of(cls) -> list[str]:
    """The fields that a section of the config has."""
    return [
        f.name for f in dataclasses.fields(cls) if cls is not ModelConfig or f.name not in DERIVED
    ]


def check_names(prefix: str, values: Mapping, known: list[str], recorded: bool) -> None:
    """ValueError names a field that is not known or not there; what to do about it depends on who wrote them."""
    for key in values:
        if key not in known:
            if recorded:
                raise ValueError(f"{prefix}{key} is not known to this version of the program")
            raise ValueError(f"the config has no field {prefix}{key}; {did_you_mean(key, known)}")
    for key in known:
        if key not in values:
            if recorded:
                raise ValueError(f"{prefix}{key} is missing")
            raise ValueError(f"the config lacks {prefix}{key}; start from configs/base.py")


def section(name: str, cls, values: Mapping):
    """The dataclass of one section of the config; ValueError names a value of another type, or out of all bounds."""
    types = {field.name: field.type for field in dataclasses.fields(cls)}
    for key, value in values.items():
        expected = (int, float) if types[key] is float else types[key]
        if not isinstance(value, expected) or (isinstance(value, bool) and types[key] is not bool):
            raise ValueError(f"{name}.{key}={value!r} must be of type {types[key].__name__}")
        if types[key] is float and not abs(value) <= sys.float_info.max:
            raise ValueError(f"{name}.{key}={value} must be a finite number")
        if types[key] is int and abs(value) >= 2**31:
            raise ValueError(f"{name}.{key}={value} must be below 2^31")
    return cls(**values)


def flat(tree: Mapping, prefix: str = "") -> dict[str, object]:
    """Nested dictionaries as one, keys joined by dots."""
    out = {}
    for key, value in tree.items():
        nested = isinstance(value, Mapping)
        out.update(flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value})
    return out


def read_json(path: Path) -> dict:
    """The object in a JSON file; ValueError names a file that holds none."""
    try:
        found = json.loads(Path(path).read_bytes().decode())
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not text in UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path} holds no JSON object")
    return found
