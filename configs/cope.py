"""Positions that count gates opened by the content (Golovneva et al. 2024, CoPE).

    python train.py --config=configs/cope.py --workdir=runs/cope

Claim: generalises past the training length better than relative positions (their language models).
Expected: behind RoPE at the training length; past it the count runs on until it is clipped to the
last of max_positions, so the curve rises less steeply than RoPE's.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("cope")
