"""Programs timed against each other, step by step in turn: what else the machine does meets all alike."""

import platform
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def race(contestants: list[str], arguments: list[str], steps: int, peers: str) -> dict:
    """Seconds of each step of each contestant, {name: [steps]}. One that cannot start is left out, and told.

    `peers`: the Python that has the peers' packages.
    """
    running, seconds = {}, {}
    for name in contestants:
        python = sys.executable if name.startswith("ours") else peers
        command = [python, str(HERE / "contestants.py"), name, *arguments]
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if child.stdout.readline().strip() == "ready":
            running[name], seconds[name] = child, []
        else:
            print(f"{name} is left out: {child.communicate()[1].strip().splitlines()[-1:]}")
    for turn in range(steps):
        order = list(running)
        for name in reversed(order) if turn % 2 else order:
            child = running[name]
            child.stdin.write("\n")
            child.stdin.flush()
            seconds[name].append(float(child.stdout.readline()))
    for child in running.values():
        child.communicate()
    return seconds


def compare(seconds: dict[str, list[float]], reference: str) -> list[dict]:
    """A record per contestant: its median step, and the ratio to the reference's step of the same turn."""
    records = []
    for name, mine in seconds.items():
        ratios = [a / b for a, b in zip(mine, seconds[reference], strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        records.append(
            {
                "name": name,
                "median_ms": round(1e3 * statistics.median(mine), 1),
                "fastest_ms": round(1e3 * min(mine), 1),
                "reference": reference,
                "ratio": round(middle, 3),
                "ratio_low": round(low, 3),
                "ratio_high": round(high, 3),
                "steps": len(mine),
            }
        )
    return records


def machine() -> dict:
    """What the figures were measured on."""
    import os
    from importlib.metadata import version

    names = [
        line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line
    ]
    return {
        "processor": names[0].partition(": ")[2] if names else platform.processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "jax": version("jax"),
        "jaxlib": version("jaxlib"),
    }
