"""The published study: seven schemes, three seeds each, trained at 128 bytes and read to 2048.

    python study.py --config=configs/studies/published.py --workdir=runs/published

For each seed four trainings of 1,000 steps (sinusoidal, learned, ALiBi, RoPE), and two fine-tunes of
its RoPE run at 512, the recipes of PI's and YaRN's papers. PI, NTK and YaRN also read the RoPE runs
as they are. About an hour on two cores; interrupted, it goes on where it stopped. The
records and what they show: docs/results/published.
"""

from ml_collections import ConfigDict

SEEDS = (0, 1, 2)
TRAINED = ("sinusoidal", "learned", "alibi", "rope")
TUNED = ("pi", "yarn")  # from the rope run of their seed
TUNING = (
    "--config.train.length=512 --config.train.batch_size=4 --config.train.steps=150 "
    "--config.train.warmup_steps=15 --config.train.learning_rate=1e-3"
)


def get_config() -> ConfigDict:
    c = ConfigDict()
    c.train = (  # flags of every training: a step is 2,048 bytes, as in the demo
        "--config.train.length=128 --config.train.batch_size=16 --config.train.steps=1000 "
        "--config.train.warmup_steps=100 --config.train.eval_every=250 --config.train.save_every=500"
    )
    runs = []
    for seed in SEEDS:
        flags = f"--config.seed={seed}"
        for name in TRAINED:
            run = {"name": f"{name}_s{seed}", "config": f"configs/{name}.py", "flags": flags}
            runs.append(run)
        for name in TUNED:
            run = {"name": f"{name}_tuned_s{seed}", "config": f"configs/{name}.py"}
            run |= {"flags": f"{flags} {TUNING}", "init_from": f"rope_s{seed}"}
            runs.append(run)
    c.runs = tuple(runs)
    c.evaluate = "--lengths=128,256,512,1024,2048 --stride=4096"  # flags of every evaluation
    own = [f"{name}_s{seed}" for name in ("sinusoidal", "learned", "alibi") for seed in SEEDS]
    tuned = [f"{name}_tuned_s{seed}" for name in TUNED for seed in SEEDS]
    c.evaluations = (
        {"runs": ",".join(own)},
        {"runs": ",".join(f"rope_s{seed}" for seed in SEEDS), "schemes": "rope,pi,ntk,yarn"},
        {"runs": ",".join(tuned)},
    )
    return c
