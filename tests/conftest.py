"""The machine that every test sees: strict, on the CPU and offline, whatever the shell says."""

import os
from importlib.metadata import version

for name in [name for name in os.environ if name.startswith("JAX_")]:
    del os.environ[name]
# In the environment, so that commands started by a test are as strict as the test itself.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
# One thread a program: the workers of `make test` share the cores without fighting, and sums
# are split alike on every machine. Compiling is most of the tests' time, and half of that is the
# newer of XLA's two code generators; `make smoke` tries that one, and what XLA optimises.
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
if version("jaxlib").startswith("0.10."):  # later ones have a single generator, and end at the flag
    os.environ["XLA_FLAGS"] += " --xla_cpu_use_fusion_emitters=false"
os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
# Nothing is read from the user's cache of compiled programs, nor left there.
os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "agg"

import jax  # noqa: E402 (reads the environment set above)

# Virtual devices for the tests of meshes; a command started by a test has one, as users do.
jax.config.update("jax_num_cpu_devices", 8)
