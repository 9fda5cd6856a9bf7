"""Local layers with a window alternating with a global layer of a larger base, as in Gemma 3 (Gemma
Team 2025).

    python train.py --config=configs/local_global.py --workdir=runs/local_global

Three layers see 32 tokens and turn with base 10,000, the fourth sees all and turns with base
1,000,000 (Gemma 3: five to one, windows of 1024). `position="rope|rope|rope|nope"` is the
interleaved NoPE of Llama 4 and SmolLM3 in the same notation. Expected: rope's loss at the training
length; past it the loss rises more slowly, as only one layer meets new distances.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    local, wide = "rope:base=10000+window:size=32", "rope:base=1000000"
    return base.get_config(f"{local}|{local}|{local}|{wide}")
