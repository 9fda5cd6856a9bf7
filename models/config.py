"""What a model is made of, checked before anything is built."""

import dataclasses

from posenc import Dims


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """The fields of `config.model`, with what the run's data, position scheme and training length
    add.

    num_kv_heads 0 means as many as num_heads. `position` is a spec in its one-line spelling.
    """

    num_layers: int
    d_model: int
    num_heads: int
    num_kv_heads: int
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
            if getattr(self, name) < 1:
                raise ValueError(f"model.{name}={getattr(self, name)} must be at least 1")
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

    @property
    def head_size(self) -> int:
        """K."""
        return self.d_model // self.num_heads

    @property
    def dims(self) -> Dims:
        return Dims(
            D=self.d_model,
            H=self.num_heads,
            K=self.head_size,
            train_length=self.train_length,
            G=self.num_kv_heads,
        )
