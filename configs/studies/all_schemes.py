"""Every scheme at the demo's size: trained at 64 tokens, evaluated to 1024.

    python study.py --config=configs/studies/all_schemes.py --workdir=runs/all_schemes

Schemes with weights of their own, or that change what is learned, are trained; the scalings of RoPE
read its run, and those whose papers fine-tune are also fine-tuned at 256 tokens. About forty
minutes on two cores.
"""

from ml_collections import ConfigDict

TRAINED = (
    "nope sinusoidal learned rope p_rope xpos log_n alibi t5 kerple sandwich fire shaw transformer_xl xlnet deberta "
    "cope window local_global"
).split()
TUNED = ("pi", "ntk", "ntk_by_parts", "yarn", "llama3", "longrope")  # from the rope run
# Sixteen pairs a head: the slow half divided by the ratio of lengths, the fast half kept.
LISTS = f"short_factor={'/'.join(['1'] * 16)},long_factor={'/'.join(['1'] * 8 + ['16'] * 8)}"
SWAPS = (
    "rope,nope,pi,dynamic_pi,ntk,dynamic_ntk,ntk_by_parts,yarn,dynamic_yarn,llama3,p_rope:p=0.75,rope+log_n,"
    f"longrope:{LISTS},rope+window:size=64,rope+window:size=60,sinks=4,streaming=true"
)


def get_config() -> ConfigDict:
    c = ConfigDict()
    c.train = ""  # flags of every training
    c.runs = tuple({"name": name, "config": f"configs/{name}.py"} for name in TRAINED) + tuple(
        {"name": f"{name}_tuned", "config": f"configs/{name}.py", "init_from": "rope"}
        for name in TUNED
    )
    c.evaluate = "--lengths=64,128,256,512,1024 --stride=4096"  # flags of every evaluation
    c.evaluations = (
        {"runs": ",".join(name for name in TRAINED if name != "rope")},
        {"runs": "rope", "schemes": SWAPS},
        {"runs": ",".join(f"{name}_tuned" for name in TUNED)},
    )
    return c
