"""p-RoPE: only the fastest quarter of the frequencies rotate (Barbero et al. 2024).

    python train.py --config=configs/p_rope.py --workdir=runs/p_rope

Expected: about as good as RoPE at the training length; past it the loss still rises, as the pairs
that rotate are extrapolated.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("p_rope")
