"""The training steps that are timed against each other: each in a process of its own, one step for each line read.

    python benchmarks/contestants.py ours:rope TOKENS_PER_WINDOW WINDOWS

Writes "ready" after a few steps, then for each line of its input the seconds of one step. All train
the same shape on the same random bytes: D 128, 4 layers, 4 heads, AdamW, gradients clipped to norm
1, float32. Ours is the run's own train step; the others are the usual loop around a published model.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

VOCABULARY = 257
WARM_UP = 4


def ours(position: str, T: int, B: int):
    import jax

    import models
    from configs import base
    from training.allocator import keep_freed_memory
    from training.config import RunConfig
    from training.step import init_state, make_train_step

    keep_freed_memory()  # as train.py does
    config = base.get_config(position)
    config.train.length, config.train.batch_size = T, B
    config = RunConfig.from_config(config)
    model = models.build(config.model_config(VOCABULARY), config.seed)
    graph, params = models.split(model)
    state, train_step = init_state(params, config), make_train_step(graph, config)
    batch = {"tokens": tokens(T, B), "weights": np.ones((B, T), np.float32)}
    batch = jax.device_put(batch)

    def step() -> None:
        nonlocal state
        state, metrics = train_step(state, batch)
        jax.block_until_ready(metrics)

    return step


def torch_step(model, loss, T: int, B: int):
    """The usual PyTorch loop: forward, backward, clip, AdamW."""
    import torch

    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, fused=True
    )
    data = torch.from_numpy(tokens(T, B).astype(np.int64))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(model, data).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def llama(T: int, B: int):
    """Llama of Hugging Face transformers: RoPE, SwiGLU."""
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=128,
        intermediate_size=344,
        num_hidden_layers=4,
        num_attention_heads=4,
        max_position_embeddings=T,
        tie_word_embeddings=True,
        use_cache=False,
    )
    model = transformers.LlamaForCausalLM(config)

    def loss(model, data):
        return model(input_ids=data[:, :-1], labels=data[:, :-1]).loss

    return torch_step(model, loss, T, B)


def x_transformers(T: int, B: int):
    """A decoder of x-transformers: RoPE, SwiGLU."""
    from x_transformers import Decoder, TransformerWrapper
    from x_transformers.autoregressive_wrapper import AutoregressiveWrapper

    decoder = Decoder(
        dim=128,
        depth=4,
        heads=4,
        attn_dim_head=32,
        rotary_pos_emb=True,
        ff_glu=True,
        ff_swish=True,
        ff_mult=344 / 128,
        attn_flash=True,
    )
    model = TransformerWrapper(num_tokens=VOCABULARY, max_seq_len=T, attn_layers=decoder)
    return torch_step(AutoregressiveWrapper(model), lambda model, data: model(data), T, B)


def plain_torch(T: int, B: int):
    """A GPT of plain PyTorch as in teaching code: learned positions, GELU, fused attention."""
    import torch
    from torch.nn import functional as F

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = torch.nn.LayerNorm(128), torch.nn.LayerNorm(128)
            self.qkv = torch.nn.Linear(128, 3 * 128, bias=False)
            self.out = torch.nn.Linear(128, 128, bias=False)
            self.up = torch.nn.Linear(128, 512, bias=False)
            self.down = torch.nn.Linear(512, 128, bias=False)

        def forward(self, x):
            rows = self.qkv(self.norm1(x)).view(*x.shape[:2], 3, 4, 32).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(*rows, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(x.shape))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    class GPT(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = torch.nn.Embedding(VOCABULARY, 128)
            self.positions = torch.nn.Embedding(T, 128)
            self.blocks = torch.nn.ModuleList(Block() for _ in range(4))
            self.norm = torch.nn.LayerNorm(128)

        def forward(self, ids):
            x = self.tokens(ids) + self.positions.weight
            for block in self.blocks:
                x = block(x)
            return self.norm(x) @ self.tokens.weight.T

    def loss(model, data):
        return F.cross_entropy(model(data[:, :-1]).flatten(0, 1), data[:, 1:].flatten())

    return torch_step(GPT(), loss, T, B)


PEERS = {"llama": llama, "x-transformers": x_transformers, "plain-torch": plain_torch}


def tokens(T: int, B: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, VOCABULARY, (B, T + 1), dtype=np.int32)


def main() -> None:
    name, T, B = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    kind, _, position = name.partition(":")
    step = ours(position, T, B) if kind == "ours" else PEERS[kind](T, B)
    for _ in range(WARM_UP):
        step()
    print("ready", flush=True)
    for _ in sys.stdin:
        began = time.perf_counter()
        step()
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
