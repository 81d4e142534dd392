"""Speed of the Cube's orders of accumulation, as ratios to the fast form inside one run.

    python experiments/bench/matmul.py
    python experiments/bench/matmul.py --size 1024 --rounds 15

The forms run interleaved, round after round, on the same operands (half-precision values held in
float32); compile time is apart. To hold at 512^3: blocked by 16 at most 4 times the fast form,
sequential at most 15 times.
"""

import argparse
import functools
import importlib.metadata
import os
import platform
import time

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

from npusim import ops

FORMS: dict[str, ops.Accumulate] = {
    "fast": "fast",
    "blocked 16": ("blocked", 16),
    "blocked 32": ("blocked", 32),
    "blocked 64": ("blocked", 64),
    "blocked 256": ("blocked", 256),
    "sequential": "sequential",
}


def measure(size: int, rounds: int) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Seconds to compile, and seconds of every round, by form."""
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.standard_normal((size, size)), jnp.float16) for _ in range(2))
    kernels = {
        name: jax.jit(functools.partial(ops.matmul, dtype="fp32", accumulate=form))
        for name, form in FORMS.items()
    }
    compiled: dict[str, float] = {}
    for name, kernel in kernels.items():
        start = time.perf_counter()
        kernel(a, b).block_until_ready()
        compiled[name] = time.perf_counter() - start
    times: dict[str, list[float]] = {name: [] for name in FORMS}
    for _ in range(rounds):
        for name, kernel in kernels.items():
            start = time.perf_counter()
            kernel(a, b).block_until_ready()
            times[name].append(time.perf_counter() - start)
    return compiled, times


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=11)
    args = parser.parse_args()
    versions = " ".join(f"{p} {importlib.metadata.version(p)}" for p in ("jax", "jaxlib", "numpy"))
    device = jax.devices()[0]
    print(f"{versions}; {device.platform} {device.device_kind}; {platform.processor()}")
    print(f"{os.cpu_count()} CPUs, Python {platform.python_version()}")
    compiled, times = measure(args.size, args.rounds)
    base = times["fast"]
    title = f"matmul {args.size}^3, medians of {args.rounds}"
    table = Table("form", "x fast (median)", "x fast (min)", "ms", "compile s", title=title)
    for name, spent in times.items():
        table.add_row(
            name,
            f"{np.median(spent) / np.median(base):.2f}",
            f"{min(spent) / min(base):.2f}",
            f"{np.median(spent) * 1e3:.2f}",
            f"{compiled[name]:.2f}",
        )
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
