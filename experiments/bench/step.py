"""A transformer training step with and without casts: ratios inside one run.

    python experiments/bench/step.py
    python experiments/bench/step.py --size 512x8 --rounds 4 --only "input, weight|+ elementwise"
    python experiments/bench/step.py --size 64x2 --batch 2 --length 32 --rounds 2

The variants run in turn and the shortest run of each counts; on a shared machine the ratio of
processor times says more than that of the clock. To hold at 256x4: casts on inputs and weights at
most 1.05 times the plain step, on outputs and gradients as well 1.20, on every elementwise
operation 1.60; statistics of overflow, flushed and amax at most 1.5 times the same step without,
all of them at most 2 times. Most of the minutes it takes is compilation: what an unrolled model has
of casts is compiled one by one, a second for ten of them with statistics.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import flax
import jax
import optax
from rounds import Program, interleaved, machine, options
from transformer import loss_of, setting

from npusim.casting import FormatParams
from npusim.inject import CastSpec, Policy, Rule, simulate

SOME = ("overflow", "flushed", "amax")


def spec(name: str, **fields: Any) -> CastSpec:
    """A cast in RINT, as most recipes have it."""
    return CastSpec(name, "RINT", **fields)


def policies() -> dict[str, Policy]:
    """Policies by name; each widens the one before."""
    e4m3, amax = spec("fp8_e4m3"), spec("fp8_e4m3", scale="amax")
    half, e5m2 = spec("fp16"), spec("fp8_e5m2")
    elementwise = ["add", "sub", "mul", "div", "exp", "tanh", "rsqrt", "max", "integer_pow"]
    return {
        "no casts": Policy([Rule()]),
        "input, weight": Policy([Rule(input=e4m3, weight=e4m3)]),
        "input, weight (amax)": Policy([Rule(input=amax, weight=amax)]),
        "+ output, grad": Policy([Rule(input=e4m3, weight=e4m3, output=half, grad=e5m2)]),
        "+ elementwise": Policy(
            [
                Rule(input=e4m3, weight=e4m3, output=half, grad=e5m2),
                Rule(ops=elementwise, output=half),
            ]
        ),
    }


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way to differentiate the loss.

    Attributes:
        differentiate: returns ``((loss, gradients), statistics)``.
        beside: the variant whose time this one's is also compared with.
        formats: traced formats, an argument of the step.
    """

    differentiate: Callable[..., Any]
    beside: str = ""
    formats: tuple[FormatParams, ...] = ()


def variants(gradient: Callable[..., Any]) -> dict[str, Variant]:
    """Return all of them by name."""

    def quiet(fn: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: (fn(*args), None)

    def traced(params: Any, tokens: jax.Array, formats: FormatParams) -> Any:
        cast = CastSpec(formats)
        policy = Policy([Rule(input=cast, weight=cast)])
        return simulate(gradient, policy, params=0)(params, tokens), None

    found = {"plain": Variant(quiet(gradient))}
    for name, policy in policies().items():
        found[name] = Variant(quiet(simulate(gradient, policy, params=0)))
    found["input, weight (traced)"] = Variant(
        traced, "input, weight", (FormatParams.of("fp8_e4m3", "RINT"),)
    )
    name = "+ output, grad"
    for words, chosen in (("some", SOME), ("all", True)):
        counted = simulate(gradient, policies()[name], params=0, stats=chosen)
        found[f"{name}, {words} statistics"] = Variant(counted, name)
    return found


def main() -> None:
    """Print the table."""
    parser = options(__doc__, rounds=9, budget=150)
    parser.add_argument("--only", default="", help="these variants by name, a|b, and the plain one")
    parser.add_argument("--scanned", action="store_true", help="scan over rematerialised blocks")
    args = parser.parse_args()
    state_of_machine = machine()
    width, layers = map(int, args.size.split("x"))
    model, params, tokens = setting(width, layers, args.length, args.batch, scanned=args.scanned)
    optimizer = optax.adamw(1e-3)
    state = optimizer.init(params)

    def step_of(differentiate: Callable[..., Any]) -> Callable[..., Any]:
        def step(params: Any, state: Any, tokens: jax.Array, *formats: Any) -> Any:
            (value, grads), stats = differentiate(params, tokens, *formats)
            updates, state = optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state, value, stats

        return step

    chosen = variants(jax.value_and_grad(loss_of(model)))
    if args.only:
        names = args.only.split("|")
        unknown = [name for name in names if name not in chosen]
        if unknown:
            parser.error(f"no variant {unknown[0]!r}; there are: {' | '.join(chosen)}")
        wanted = {"plain", *names, *(chosen[name].beside for name in names)}
        chosen = {name: variant for name, variant in chosen.items() if name in wanted}
    programs = {
        name: Program.of(step_of(variant.differentiate), params, state, tokens, *variant.formats)
        for name, variant in chosen.items()
    }
    rounds = interleaved(programs, args.rounds, args.budget)
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    print(f"jax {jax.__version__}, flax {flax.__version__}, {jax.devices()[0].device_kind}")
    print(f"{state_of_machine}; {rounds} rounds")
    print(f"{vars(args)}, {count / 1e6:.2f} M parameters\n")
    print("| variant | step ms | ratio | processor ratio | to the same without | compile s | MiB |")
    print("|---|---|---|---|---|---|---|")
    plain = programs["plain"]
    for name, program in programs.items():
        ratios = f"{program.wall / plain.wall:.2f} | {program.processor / plain.processor:.2f}"
        base = programs.get(chosen[name].beside)
        beside = (
            ""
            if base is None
            else f"{program.wall / base.wall:.2f} ({program.processor / base.processor:.2f})"
        )
        rest = f"{beside} | {program.compile_s:.1f} | {program.memory:.0f}"
        print(f"| {name} | {1e3 * program.wall:.0f} | {ratios} | {rest} |")


if __name__ == "__main__":
    main()
