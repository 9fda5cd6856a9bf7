"""xPos: RoPE whose pairs decay with distance (Sun et al. 2022).

    python train.py --config=configs/xpos.py --workdir=runs/xpos

The decay is slow (scale_base = 512 tokens), for training lengths of a thousand and more; at this
config's 64 tokens scale_base=32 is in the same proportion.
Expected: as RoPE at the training length; past it a flatter curve, the flatter the faster the decay.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("xpos:scale_base=32")
