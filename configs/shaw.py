"""A trained vector per clipped distance, on keys and values (Shaw, Uszkoreit & Vaswani 2018).

    python train.py --config=configs/shaw.py --workdir=runs/shaw

Claim: distances beyond a small clip do not matter (their table 2: no change from 4 to 256).
Expected: as good as RoPE at the training length; past it every distance is one that training saw,
so the curve rises slowly, and only because more keys share the last row.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("shaw")
