"""What a model is made of, checked before anything is built."""

import dataclasses

from models.carry import CARRIED, check_carried
from posenc import Dims

# Far above any model that is trained: a mistyped size is refused before memory is taken or names made.
LARGEST = {"num_layers": 4096, "d_model": 2**20, "num_heads": 2**16, "d_ff": 2**20}
LATENT_SIZES = ("latent_size", "rope_size", "query_latent_size")


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The fields of `config.model`, with what the run's data, position scheme and training length
    add.

    num_kv_heads 0 means as many as num_heads. `position` is a spec in its one-line spelling; one
    that the attention kind cannot carry is refused here, so that training and every swap meet it.
    """

    num_layers: int
    d_model: int
    num_heads: int
    num_kv_heads: int
    attention: str
    latent_size: int
    rope_size: int
    query_latent_size: int
    d_ff: int
    activation: str
    dropout: float
    dtype: str
    remat: bool
    tie_embeddings: bool
    position: str
    vocab_size: int
    train_length: int

    def __post_init__(self):
        for name in ("num_layers", "d_model", "num_heads", "d_ff"):
            if not 1 <= getattr(self, name) <= LARGEST[name]:
                raise ValueError(
                    f"model.{name}={getattr(self, name)} must be at least 1 and at most {LARGEST[name]:,}"
                )
        if self.d_model % self.num_heads:
            raise ValueError(
                f"model.d_model={self.d_model} must be a multiple of model.num_heads={self.num_heads}"
            )
        if self.num_kv_heads == 0:
            object.__setattr__(self, "num_kv_heads", self.num_heads)
        if self.num_kv_heads < 0 or self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"model.num_kv_heads={self.num_kv_heads} must divide model.num_heads={self.num_heads} "
                "(0: as many)"
            )
        if self.activation not in ("swiglu", "gelu"):
            raise ValueError(f"model.activation={self.activation!r} must be swiglu or gelu")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"model.dropout={self.dropout} must be at least 0 and below 1")
        if self.dtype not in ("float32", "bfloat16"):
            raise ValueError(f"model.dtype={self.dtype!r} must be float32 or bfloat16")
        if self.attention not in CARRIED:
            raise ValueError(
                f"model.attention={self.attention!r} must be one of {', '.join(CARRIED)}"
            )
        self.check_latent()
        check_carried(self.attention, self.position, self.dims)

    def check_latent(self) -> None:
        """The fields that latent attention alone reads, and the one that it does not."""
        if self.attention != "latent":
            for name in LATENT_SIZES:
                if getattr(self, name):
                    raise ValueError(
                        f"model.{name}={getattr(self, name)} is read only with "
                        f"model.attention=latent; with {self.attention} it must be 0"
                    )
            return
        for name, least in zip(LATENT_SIZES, (1, 2, 0), strict=True):
            if not least <= getattr(self, name) <= LARGEST["d_model"]:
                raise ValueError(
                    f"model.{name}={getattr(self, name)} must be at least {least} and at most "
                    f"{LARGEST['d_model']:,} with model.attention=latent"
                )
        if self.rope_size % 2:
            raise ValueError(
                f"model.rope_size={self.rope_size} must be even: channels are rotated in pairs"
            )
        if self.num_kv_heads != self.num_heads:
            raise ValueError(
                f"model.num_kv_heads={self.num_kv_heads} must be 0 with model.attention=latent, "
                "whose heads share one latent"
            )

    @property
    def head_size(self) -> int:
        """K."""
        return self.d_model // self.num_heads

    @property
    def dims(self) -> Dims:
        """What the position scheme sees; of latent attention, the decoupled channels and their one key head."""
        latent = self.attention == "latent"
        return Dims(
            D=self.d_model,
            H=self.num_heads,
            K=self.rope_size if latent else self.head_size,
            train_length=self.train_length,
            G=1 if latent else self.num_kv_heads,
        )
