"""The frequency scaling of Llama 3.1, fine-tuned from a RoPE run at 4 times its length (Meta 2024).

    python train.py --config=configs/llama3.py --workdir=runs/llama3 --init_from=runs/rope

The factor is the ratio of the two lengths and is fixed; the original length is the parent's.
Expected: without a fine-tune, at 16 times the training length, between yarn and ntk_by_parts, of
which it is the case with 1 and 4 turns as bounds.
"""

from ml_collections import ConfigDict

from configs import pi


def get_config() -> ConfigDict:
    c = pi.get_config()
    c.position = "llama3:factor=4"
    return c
