"""A transformer's forward pass under casts, against qwix on the same model and parameters.

    python experiments/bench/forward.py                  # needs the extra `bench`
    python experiments/bench/forward.py --size 512x8 --rounds 5
    python experiments/bench/forward.py --size 64x2 --batch 2 --length 32 --rounds 2

Inputs and weights of every product are rounded, with one amax scale for each tensor: by npusim, by
qwix's quantized training (QtProvider, which multiplies in the narrow type and scales the products)
and, int8 alone, by qwix's fake quantization (OdmlQatProvider, which rounds what the operations put
out and multiplies in float32). Both are given one scale for each tensor where they allow it.
"""

import importlib.metadata
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from rounds import Program, interleaved, machine, options
from transformer import LM, setting

from npusim.inject import CastSpec, Policy, Rule, simulate

PACKAGES = ("jax", "flax", "qwix")


def ours(model: LM, cast: CastSpec) -> Callable[..., Any]:
    """The forward pass under npusim's casts."""
    policy = Policy([Rule(input=cast, weight=cast)])
    return simulate(lambda p, t: model.apply({"params": p}, t), policy, params=0)


def theirs(model: LM) -> dict[str, Callable[..., Any]]:
    """The forward pass in qwix's forms."""
    import qwix  # pyright: ignore[reportMissingImports]

    def applied(provider: Any) -> Callable[..., Any]:
        quantized = qwix.quantize_model(model, provider)
        return lambda p, t: quantized.apply({"params": p}, t)

    found = {}
    for name, dtype in (("int8", jnp.int8), ("fp8_e4m3", jnp.float8_e4m3fn)):
        rule = qwix.QtRule(weight_qtype=dtype, act_qtype=dtype, disable_channelwise_axes=True)
        found[f"qwix {name}, QtProvider"] = applied(qwix.QtProvider([rule]))
    rule = qwix.QuantizationRule(
        weight_qtype=jnp.int8,
        act_qtype=jnp.int8,
        act_static_scale=False,
        act_calibration_method="absmax",
    )
    provider = qwix.OdmlQatProvider([rule], disable_per_channel_weights=True)
    found["qwix int8, OdmlQatProvider"] = applied(provider)
    return found


def main() -> None:
    """Print the table."""
    parser = options(__doc__, rounds=15, budget=120)
    args = parser.parse_args()
    state = machine()
    width, layers = map(int, args.size.split("x"))
    model, params, tokens = setting(width, layers, args.length, args.batch)
    forms: dict[str, Callable[..., Any]] = {"plain": lambda p, t: model.apply({"params": p}, t)}
    for name in ("int8", "fp8_e4m3"):
        forms[f"npusim {name}"] = ours(model, CastSpec(name, "RINT", scale="amax"))
    forms |= theirs(model)
    programs = {name: Program.of(fn, params, tokens[:, :-1]) for name, fn in forms.items()}
    plain = programs["plain"].run(params, tokens[:, :-1])
    rounds = interleaved(programs, args.rounds, args.budget)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in PACKAGES)
    print(f"{versions}, {jax.devices()[0].device_kind}; {state}; {rounds} rounds")
    print(f"{vars(args)}\n")
    print("| form | forward ms | ratio | processor ratio | compile s | MiB | error of the logits |")
    print("|---|---|---|---|---|---|---|")
    first = programs["plain"]
    for name, program in programs.items():
        # That all forms round and none rounds something else: relative to the plain logits.
        error = jnp.linalg.norm(program.run(*program.args) - plain) / jnp.linalg.norm(plain)
        ratios = f"{program.wall / first.wall:.2f} | {program.processor / first.processor:.2f}"
        rest = f"{program.compile_s:.1f} | {program.memory:.0f} | {float(error):.4f}"
        print(f"| {name} | {1e3 * program.wall:.1f} | {ratios} | {rest} |")


if __name__ == "__main__":
    main()
