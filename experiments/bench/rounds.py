"""Compiled programs timed in turn, so that whatever else the machine does falls on all of them."""

import argparse
import dataclasses
import os
import platform
import time
from collections.abc import Callable
from typing import Any

import jax


def options(description: str | None, rounds: int, budget: float) -> argparse.ArgumentParser:
    """The options that benchmarks of the transformer share."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", default="256x4", help="width x layers")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--budget", type=float, default=budget, help="seconds for all rounds")
    return parser


@dataclasses.dataclass
class Program:
    """A compiled function with its arguments, and what was measured of it.

    Attributes:
        run: the compiled function.
        args: its arguments.
        compile_s: seconds of tracing and compiling.
        memory: MiB of temporary buffers.
        wall: shortest run in seconds.
        processor: shortest processor time, which on a shared machine says more.
    """

    run: Callable[..., Any]
    args: tuple[Any, ...]
    compile_s: float
    memory: float
    wall: float = float("inf")
    processor: float = float("inf")

    @classmethod
    def of(cls, fn: Callable[..., Any], *args: Any) -> "Program":
        """Compile ``fn`` for these arguments."""
        began = time.perf_counter()
        compiled = jax.jit(fn).lower(*args).compile()
        seconds = time.perf_counter() - began
        memory = compiled.memory_analysis()
        return cls(
            compiled, args, seconds, 0 if memory is None else memory.temp_size_in_bytes / 2**20
        )

    def once(self) -> None:
        """Run and keep the shortest times."""
        began, used = time.perf_counter(), time.process_time()
        jax.block_until_ready(self.run(*self.args))
        self.wall = min(self.wall, time.perf_counter() - began)
        self.processor = min(self.processor, time.process_time() - used)


def interleaved(programs: dict[str, Program], rounds: int, budget: float) -> int:
    """Run all programs round after round; stop early when ``budget`` seconds are over.

    Returns:
        The number of rounds, two at least.
    """
    for program in programs.values():
        jax.block_until_ready(program.run(*program.args))
    began = time.perf_counter()
    for done in range(1, rounds + 1):
        for program in programs.values():
            program.once()
        spent = time.perf_counter() - began
        if done >= 2 and spent * (done + 1) / done > budget:
            return done
    return rounds


def machine() -> str:
    """Return the machine and its load, which says whether the figures mean anything."""
    load = os.getloadavg()[0]
    return f"{platform.machine()}, {os.cpu_count()} cores, load {load:.1f} at the start"
