"""XLNet's positions, in a causal model the same formula as Transformer-XL's (Yang et al. 2019).

    python train.py --config=configs/xlnet.py --workdir=runs/xlnet

Expected: the curve of transformer_xl; with the same seed, the very same run.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("xlnet")
