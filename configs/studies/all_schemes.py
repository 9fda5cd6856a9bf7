"""Every scheme at the demo's size: trained at 64 tokens, evaluated to 1024.

    python study.py --config=configs/studies/all_schemes.py --workdir=runs/all_schemes

Schemes with weights of their own, or that change what is learned, are trained; the scalings of RoPE
read its run (their fine-tunes are in configs/studies/published.py). About half an hour on two
cores.
"""

from ml_collections import ConfigDict

TRAINED = (
    "nope sinusoidal learned rope p_rope xpos log_n alibi t5 kerple sandwich fire shaw transformer_xl xlnet deberta "
    "cope window local_global"
).split()
# Sixteen pairs a head: the slow half divided by the ratio of lengths, the fast half kept.
LISTS = f"short_factor={'/'.join(['1'] * 16)},long_factor={'/'.join(['1'] * 8 + ['16'] * 8)}"
SWAPS = (
    "rope,nope,pi,dynamic_pi,ntk,dynamic_ntk,ntk_by_parts,yarn,dynamic_yarn,llama3,p_rope:p=0.75,rope+log_n,"
    f"longrope:{LISTS},rope+window:size=64,rope+window:size=60,sinks=4,streaming=true"
)


def get_config() -> ConfigDict:
    c = ConfigDict()
    c.train = ""  # flags of every training
    c.runs = tuple({"name": name, "config": f"configs/{name}.py"} for name in TRAINED)
    c.evaluate = "--lengths=64,128,256,512,1024 --stride=4096"  # flags of every evaluation
    c.evaluations = (
        {"runs": ",".join(name for name in TRAINED if name != "rope")},
        {"runs": "rope", "schemes": SWAPS},
    )
    return c
