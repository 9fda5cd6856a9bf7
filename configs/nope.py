"""NoPE: no position information but the causal mask (Kazemnejad et al. 2023).

    python train.py --config=configs/nope.py --workdir=runs/nope

Expected: worse than rope at the training length; past it the loss rises, more slowly than RoPE's.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("nope")
