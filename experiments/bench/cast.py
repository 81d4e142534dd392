"""Speed of the casts, as ratios inside one run.

    python experiments/bench/cast.py                     # every format and mode, 2**20 and 2**24
    python experiments/bench/cast.py --quick             # one mode a format
    XLA_FLAGS=--xla_cpu_prefer_vector_width=512 python experiments/bench/cast.py

The flag is for AVX-512 machines, where XLA stays with 256-bit vectors; a program can give it to its
own outermost jit: ``jax.jit(step, compiler_options={"xla_cpu_prefer_vector_width": "512"})``.

Reference is a jitted copy that flips one bit, so that it cannot be optimised away: the same 8
bytes an element. All kernels of a size run interleaved, round after round; the ratio of the
minima is printed, since what else runs on the machine only adds time. Absolute times depend on
the machine and mean little; the first lines name it.
"""

import argparse
import functools
import importlib.metadata
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table

import npusim as npu

FORMATS = "fp16 bf16 fp8_e4m3 fp8_e5m2 hif8 fp4_e2m1 fp4_e1m2 hf32 fp8_e8m0 int4 int8 uint8 int16"
MODES = "RINT FLOOR CEIL ROUND TRUNC ODD"
Kernel = Callable[[jax.Array], jax.Array]


def copy(x: jax.Array) -> jax.Array:
    """One pass over the data that does as little as possible."""
    word = jax.lax.bitcast_convert_type(x, jnp.uint32)
    return jax.lax.bitcast_convert_type(word ^ np.uint32(1), jnp.float32)


def chain(length: int) -> Kernel:
    """A copy with ``length`` dependent integer operations: what arithmetic costs here."""

    def run(x: jax.Array) -> jax.Array:
        word = jax.lax.bitcast_convert_type(x, jnp.uint32)
        for step in range(length):
            odd = np.uint32(2654435761 * (step + 1) % (1 << 32))
            word = word ^ odd if step % 2 else word + odd
        return jax.lax.bitcast_convert_type(word, jnp.float32)

    return run


def ours(modes: list[str]) -> dict[str, Kernel]:
    """Static casts of every format, mode and saturation, and the traced form."""
    kernels: dict[str, Kernel] = {}
    for name in FORMATS.split():
        for mode in modes:
            for sat in ("ON", "OFF"):
                cast = functools.partial(npu.fake_cast, dtype=name, mode=mode, satmode=sat)
                kernels[f"{name} {mode} {sat}"] = jax.jit(cast)
    traced = jax.jit(npu.fake_cast)
    for name in ("fp32", "fp16", "fp8_e4m3", "hif8", "int8"):
        for sat in ("ON", "OFF"):
            params = jax.device_put(npu.FormatParams.of(name, "RINT", sat))
            kernels[f"traced {name} {sat}"] = lambda x, params=params: traced(x, params)
    return kernels


def native() -> dict[str, Kernel]:
    """XLA's own conversions there and back: nearest even only, and overflow as XLA has it."""
    types = {
        "fp16": jnp.float16,
        "bf16": jnp.bfloat16,
        "fp8_e4m3": jnp.float8_e4m3fn,
        "fp8_e5m2": jnp.float8_e5m2,
        "int8": jnp.int8,
    }
    return {
        f"astype {name}": jax.jit(lambda x, dtype=dtype: x.astype(dtype).astype(jnp.float32))
        for name, dtype in types.items()
    }


def peers() -> dict[str, Kernel]:
    """The JAX paths of gfloat and pychop, where installed (extra ``bench``)."""
    kernels: dict[str, Kernel] = {}
    try:
        import gfloat
        from gfloat import formats
    except ImportError:
        print("gfloat is not installed: left out (pip install 'npusim[bench]')")
    else:
        for name, info in (
            ("fp16", formats.format_info_binary16),
            ("fp8_e4m3", formats.format_info_ocp_e4m3),
            ("fp8_e5m2", formats.format_info_ocp_e5m2),
        ):
            kernels[f"gfloat {name}"] = jax.jit(
                functools.partial(_gfloat, gfloat.round_ndarray, info, gfloat.RoundMode.TiesToEven)
            )
    try:
        import pychop  # pyright: ignore[reportMissingImports]
    except ImportError:
        print("pychop is not installed: left out (pip install 'npusim[bench]')")
    else:
        pychop.backend("jax")
        for name, exponent, fraction in (("fp16", 5, 10), ("fp8_e4m3", 4, 3), ("fp8_e5m2", 5, 2)):
            kernels[f"pychop {name}"] = jax.jit(
                pychop.Chop(exp_bits=exponent, sig_bits=fraction, rmode=1)
            )
    return kernels


def _gfloat(round_ndarray: Callable[..., Any], info: object, mode: object, x: jax.Array) -> Any:
    return round_ndarray(info, x, mode, True)


def measure(kernels: dict[str, Kernel], size: int, rounds: int) -> dict[str, tuple[float, float]]:
    """(minimum, median) seconds of each kernel, interleaved."""
    x = jnp.asarray(np.random.default_rng(0).standard_normal(size).astype(np.float32))
    for kernel in kernels.values():
        kernel(x).block_until_ready()
    times: dict[str, list[float]] = {name: [] for name in kernels}
    for _ in range(rounds):
        for name, kernel in kernels.items():
            start = time.perf_counter()
            kernel(x).block_until_ready()
            times[name].append(time.perf_counter() - start)
    return {name: (min(t), float(np.median(t))) for name, t in times.items()}


def report(title: str, times: dict[str, tuple[float, float]], size: int) -> None:
    """Print ratios to the copy."""
    base = times["copy"]
    table = Table("kernel", "x copy (min)", "x copy (median)", "ns/element", title=title)
    for name, (least, median) in times.items():
        table.add_row(
            name,
            f"{least / base[0]:.2f}",
            f"{median / base[1]:.2f}",
            f"{least / size * 1e9:.3f}",
        )
    Console(width=100).print(table)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="mode RINT only")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--log2", type=int, nargs="*", default=[20, 24], help="sizes")
    args = parser.parse_args()
    versions = {
        package: importlib.metadata.version(package)
        for package in ("npusim", "jax", "jaxlib", "numpy", "gfloat", "pychop")
        if _installed(package)
    }
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} CPUs, {versions}")
    print(f"devices {jax.devices()}, XLA_FLAGS={os.environ.get('XLA_FLAGS', '')!r}")
    modes: list[str] = ["RINT"] if args.quick else [*MODES.split()]
    for log2 in args.log2:
        size = 1 << log2
        reference: dict[str, Kernel] = {
            "copy": jax.jit(copy),
            "copy + 36 operations": jax.jit(chain(36)),
        }
        times = measure({**reference, **ours(modes), **native()}, size, args.rounds)
        report(f"2**{log2} elements", times, size)
        slow = measure({"copy": jax.jit(copy), **_rint(), **peers()}, size, 3)
        report(f"2**{log2} elements, peers (nearest even)", slow, size)
        for name in ("fp16", "fp8_e4m3", "fp8_e5m2"):
            for peer in ("gfloat", "pychop"):
                if f"{peer} {name}" in slow:
                    ratio = slow[f"{peer} {name}"][0] / slow[f"npusim {name}"][0]
                    print(f"{name}: {peer} takes {ratio:.1f} times as long as npusim")


def _rint() -> dict[str, Kernel]:
    return {
        f"npusim {name}": jax.jit(
            functools.partial(npu.fake_cast, dtype=name, mode="RINT", satmode="ON")
        )
        for name in ("fp16", "fp8_e4m3", "fp8_e5m2")
    }


def _installed(package: str) -> bool:
    try:
        importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


if __name__ == "__main__":
    main()
