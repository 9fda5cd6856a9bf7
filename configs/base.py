"""Every knob, once, with its unit. The other configs start from this one and change a few.

    python train.py --config=configs/base.py --workdir=runs/base --config.position=alibi

A 0.8 M parameter model of byte tokens on Shakespeare, which two CPU cores train in a little
over a minute.
"""

from ml_collections import ConfigDict, config_dict


def get_config(position="rope") -> ConfigDict:
    """`position`: a scheme's spec, "rope", "yarn:factor=4,beta_fast=32", "rope+log_n"; or a mapping
    {"scheme": "longrope", "short_factor": (…), …}.
    """
    c = ConfigDict()
    c.seed = 0  # of initial weights, batch order, dropout and randomised positions
    c.position = config_dict.placeholder(object)  # takes a string or a mapping, here or later
    c.position = position

    c.model = ConfigDict()
    c.model.num_layers = 4  # N
    c.model.d_model = 128  # D, channels
    c.model.num_heads = 4  # H; the head size K is d_model / num_heads
    c.model.num_kv_heads = 0  # G, grouped-query attention; 0: as many as num_heads
    # "softmax"; "latent", which caches one small vector per token; or "linear", whose cache does not grow
    c.model.attention = "softmax"
    c.model.latent_size = 0  # channels that all heads' keys and values come from; only for "latent"
    c.model.rope_size = 0  # channels per head that the position scheme acts on; only for "latent"
    c.model.query_latent_size = 0  # channels that queries come from, 0: d_model; only for "latent"
    c.model.d_ff = 344  # F, channels inside the feed-forward layer
    c.model.activation = "swiglu"  # or "gelu"
    c.model.dropout = 0.0  # probability, on the embeddings and on each layer's two outputs
    c.model.dtype = "float32"  # of activations, or "bfloat16"; parameters are float32 always
    c.model.remat = False  # recompute activations in the backward pass: less memory, more time
    c.model.tie_embeddings = True  # output matrix = token embeddings

    c.data = ConfigDict()
    # "shakespeare", "files:PATH_OR_GLOB", "hf:NAME/CONFIG", "jax_source" or "synthetic:TASK"
    c.data.source = "shakespeare"
    c.data.valid_source = ""  # likewise; "": whole documents of `source` are set aside
    c.data.test_source = ""  # likewise
    c.data.tokenizer = (
        "byte"  # or "bpe:4096": byte-level BPE of that many ids, trained on the source
    )
    c.data.cache_dir = "~/.cache/lengthwise"  # downloads and token files
    c.data.isolate_documents = False  # attention and positions stop at document borders in training
    c.data.text_column = "text"  # of jsonl, parquet and hub data
    c.data.split = "train"  # of hub data
    c.data.streaming = False  # read hub data as it comes, without storing it first
    c.data.max_documents = 0  # documents to read of each source; 0: all

    c.train = ConfigDict()
    c.train.steps = 500  # optimiser steps; schedules and all "every" fields count these
    c.train.stop_at = 0  # step to stop after, as an interruption would; 0: never
    c.train.batch_size = 32  # windows per step, over all devices and accumulation rounds
    c.train.length = 64  # L, tokens of a training window
    c.train.accumulate = 1  # rounds the batch is split into, to save memory
    c.train.learning_rate = 3e-3  # peak
    c.train.schedule = "cosine"  # "cosine", "constant", or "wsd": warm-up, stable, linear decay
    c.train.warmup_steps = 50  # linear from 0
    c.train.decay_steps = 0  # the last steps, in which "wsd" decays; only for "wsd"
    c.train.final_fraction = 0.1  # of the peak, where "cosine" and "wsd" end
    c.train.beta1 = 0.9  # AdamW
    c.train.beta2 = 0.95
    c.train.weight_decay = 0.1  # of dense kernels and token embeddings; never norms or positions
    c.train.grad_clip = 1.0  # global norm; 0: no clipping
    c.train.log_every = 10  # steps
    c.train.eval_every = 100  # steps between validation losses; 0: only at checkpoints
    c.train.eval_windows = 256  # validation windows, spread over the documents; 0: all
    c.train.save_every = 250  # steps between checkpoints, each validated; 0: only the last
    c.train.keep = 2  # newest checkpoints kept; the best by validation loss is kept besides

    c.mesh = ConfigDict()
    c.mesh.data = 0  # devices across which the batch is split; 0: all that fsdp leaves
    c.mesh.fsdp = 1  # devices across which batch and parameters are split
    c.mesh.distributed = False  # join the processes of all hosts: docs/distributed.md
    return c
