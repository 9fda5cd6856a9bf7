"""Disentangled attention: content to position and position to content (He et al. 2021, DeBERTa).

    python train.py --config=configs/deberta.py --workdir=runs/deberta

Distances past max_distance share the last bucket. It is the training length here, so that no bucket
is met for the first time beyond it (DeBERTa v2: 512, in 256 buckets).
Expected: as good as RoPE at the training length, rising slowly past it.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("deberta:max_distance=64")
