"""RoPE with a sliding window of half the training length (Beltagy et al. 2020; Mistral).

    python train.py --config=configs/window.py --workdir=runs/window

A window is a part of any composition, and any run can be read with one: `--schemes=rope+window:size=64` is the windowed
baseline, `--schemes=rope+window:size=60,sinks=4,streaming=true` is StreamingLLM (Xiao et al. 2024).
Expected: flat past the training length, as no distance is new, and no better for more context.
"""

from ml_collections import ConfigDict

from configs import base


def get_config() -> ConfigDict:
    return base.get_config("rope+window:size=32")
