"""T5's relative bias: a learned number per head and bucket of distances (Raffel et al. 2020).

    python train.py --config=configs/t5.py --workdir=runs/t5

Distances past the training length share buckets that training hardly saw, so max_distance is that
length here (T5: 128 for 512 tokens). Expected: nearly flat to about twice the training length, then
rising, in Press et al. 2022, figure 1. At the demo's size it rises from the training length on,
less steeply than RoPE.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("t5:max_distance=64")
