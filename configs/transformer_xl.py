"""Relative sinusoids, projected, and two trained biases (Dai et al. 2019, Transformer-XL).

    python train.py --config=configs/transformer_xl.py --workdir=runs/transformer_xl

Claim: generalises to attention longer than in training (their section 3.3; with its memory of past
segments, which this configuration does not train).
Expected: as good as RoPE at the training length or better, and nearly flat to 16 times of it.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("transformer_xl")
