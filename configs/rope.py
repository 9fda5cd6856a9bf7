"""RoPE: queries and keys rotated by their position (Su et al. 2021).

    python train.py --config=configs/rope.py --workdir=runs/rope

Expected: among the best losses at the training length, rising steeply past it. Its checkpoints are
what PI, NTK and YaRN extend: `eval_extrapolation.py --runs=runs/rope --schemes=rope,pi,ntk,yarn`.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("rope")
