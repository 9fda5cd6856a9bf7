"""A run's configuration: ConfigDict at the edge, frozen dataclasses inside, plain JSON on disk."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

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
    def from_config(cls, config: Mapping) -> "RunConfig":
        """From an ml-collections ConfigDict or the dictionary of a config.json. ValueError names what does not fit."""
        config = config.to_dict() if hasattr(config, "to_dict") else dict(config)
        known = [field.name for field in dataclasses.fields(cls)]
        for name in config:
            if name not in known:
                raise ValueError(f"the config has no field {name}; {did_you_mean(name, known)}")
        for name in known:
            if name not in config:
                raise ValueError(f"the config lacks {name}; start from configs/base.py")
        return cls(
            seed=config["seed"],
            position=canonical(config["position"]),
            model=dict(config["model"]),
            data=section("data", DataConfig, config["data"]),
            train=section("train", TrainConfig, config["train"]),
            mesh=section("mesh", MeshConfig, config["mesh"]),
        ).checked()

    def checked(self) -> "RunConfig":
        """Refuse before anything is prepared what could only fail later: the model's sizes, the scheme's options."""
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed={self.seed} must be at least 0 and below 2^32")
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
        create_layers(self.position, config.dims, config.num_layers, nnx.Rngs(0))
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


def section(name: str, cls, values: Mapping):
    """The dataclass of one section of the config; ValueError names a missing, unknown or mistyped field."""
    types = {field.name: field.type for field in dataclasses.fields(cls)}
    for key, value in values.items():
        if key not in types:
            raise ValueError(f"the config has no field {name}.{key}; {did_you_mean(key, types)}")
        expected = (int, float) if types[key] is float else types[key]
        if not isinstance(value, expected) or (isinstance(value, bool) and types[key] is not bool):
            raise ValueError(f"{name}.{key}={value!r} must be of type {types[key].__name__}")
    missing = [key for key in types if key not in values]
    if missing:
        raise ValueError(f"the config lacks {name}.{missing[0]}; start from configs/base.py")
    return cls(**values)


def flat(tree: Mapping, prefix: str = "") -> dict[str, object]:
    """Nested dictionaries as one, keys joined by dots."""
    out = {}
    for key, value in tree.items():
        nested = isinstance(value, Mapping)
        out.update(flat(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value})
    return out


def read_json(path: Path) -> dict:
    """A JSON file as a dictionary; ValueError names a file that holds none."""
    try:
        return json.loads(Path(path).read_text())
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
