"""RoPE with log-n scaling: a sharper softmax as more keys come into view (Su 2021).

    python train.py --config=configs/log_n.py --workdir=runs/log_n

Log-n owns no parameters and goes with every scheme; up to the training length it is the identity,
so this trains exactly as rope does, and `--schemes=rope+log_n` reads a rope run under it. Expected:
rope's loss at the training length. The slower rise past it of its paper does not show at the demo's
size.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("rope+log_n")
