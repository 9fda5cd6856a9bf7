"""A run that is ready in seconds, to see that everything works; the loss falls below 3 nats per
byte.

python train.py --config=configs/smoke.py --workdir=runs/smoke
"""

from ml_collections import ConfigDict

from configs import base


def get_config(position="rope") -> ConfigDict:
    c = base.get_config(position)
    c.model.num_layers = 2
    c.model.d_model = 32
    c.model.num_heads = 2
    c.model.d_ff = 64
    c.train.steps = 40
    c.train.batch_size = 16
    c.train.length = 32
    c.train.learning_rate = 1e-2
    c.train.warmup_steps = 5
    c.train.eval_every = 20
    c.train.save_every = 20
    return c
