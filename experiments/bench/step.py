"""A transformer training step with and without casts: ratios inside one run.

    python experiments/bench/step.py [--width 256 --layers 4 --length 128 --batch 16 --repeats 7]

The variants run in turn, so that whatever else the machine does falls on all of them; the ratio of
medians is what counts, and on a shared machine that of processor time. Trace and compile time and
the compiled program's memory stand beside it.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import flax
import flax.linen as nn
import jax
import optax

from npusim.casting import FormatParams
from npusim.inject import CastSpec, Policy, Rule, simulate

VOCABULARY = 256


class Block(nn.Module):
    """A pre-norm decoder block."""

    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Attention and a feed-forward layer, each with a residual."""
        mask = nn.make_causal_mask(x[..., 0])
        x = x + nn.MultiHeadDotProductAttention(8, name="attn")(nn.LayerNorm()(x), mask=mask)
        h = nn.gelu(nn.Dense(4 * self.width, name="up")(nn.LayerNorm()(x)))
        return x + nn.Dense(self.width, name="down")(h)


class LM(nn.Module):
    """A byte-level language model with tied embeddings."""

    width: int
    layers: int
    scanned: bool

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Logits of the next byte."""
        embed = nn.Embed(VOCABULARY, self.width, name="embed")
        x = embed(tokens)
        if self.scanned:
            body = nn.remat(lambda block, x, _: (block(x), None), prevent_cse=False)
            over = nn.scan(
                body,
                variable_axes={"params": 0},
                split_rngs={"params": True},
                length=self.layers,
            )
            x, _ = over(Block(self.width, name="blocks"), x, None)
        else:
            for i in range(self.layers):
                x = Block(self.width, name=f"block_{i}")(x)
        return embed.attend(nn.LayerNorm()(x))


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


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("width", 256), ("layers", 4), ("length", 128), ("batch", 16)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--scanned", action="store_true", help="scan over rematerialised blocks")
    args = parser.parse_args()
    model = LM(args.width, args.layers, args.scanned)
    tokens = jax.random.randint(jax.random.key(1), (args.batch, args.length + 1), 0, VOCABULARY)
    params = model.init(jax.random.key(0), tokens[:, :-1])["params"]
    optimizer = optax.adamw(1e-3)
    state = optimizer.init(params)

    def loss(params: Any, tokens: jax.Array) -> jax.Array:
        logits = model.apply({"params": params}, tokens[:, :-1])
        assert isinstance(logits, jax.Array)
        return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()

    gradient = jax.value_and_grad(loss)

    def step_of(differentiate: Callable[..., Any]) -> Callable[..., Any]:
        def step(params: Any, state: Any, tokens: jax.Array, *formats: Any) -> Any:
            value, grads = differentiate(params, tokens, *formats)
            updates, state = optimizer.update(grads, state, params)
            return optax.apply_updates(params, updates), state, value

        return step

    def traced(params: Any, tokens: jax.Array, formats: FormatParams) -> Any:
        cast = CastSpec(formats)
        return simulate(gradient, Policy([Rule(input=cast, weight=cast)]), params=0)(params, tokens)

    variants: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {"plain": (gradient, ())}
    for name, policy in policies().items():
        variants[name] = (simulate(gradient, policy, params=0), ())
    variants["input, weight (traced)"] = (traced, (FormatParams.of("fp8_e4m3", "RINT"),))

    compiled, rows = {}, {}
    for name, (differentiate, formats) in variants.items():
        began = time.perf_counter()
        given = (params, state, tokens, *formats)
        compiled[name] = jax.jit(step_of(differentiate)).lower(*given).compile()
        memory = compiled[name].memory_analysis()
        peak = 0 if memory is None else memory.temp_size_in_bytes / 2**20
        rows[name] = (time.perf_counter() - began, peak)
    times: dict[str, list[float]] = {name: [] for name in variants}
    work: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(args.repeats + 1):
        for name, (_, formats) in variants.items():
            began, used = time.perf_counter(), time.process_time()
            jax.block_until_ready(compiled[name](params, state, tokens, *formats))
            if turn:
                times[name].append(time.perf_counter() - began)
                work[name].append(time.process_time() - used)
    count = sum(leaf.size for leaf in jax.tree.leaves(params))
    print(f"jax {jax.__version__}, flax {flax.__version__}, {jax.devices()[0].device_kind}")
    print(f"{vars(args)}, {count / 1e6:.2f} M parameters\n")
    print("| variant | step ms | ratio | processor ratio | trace+compile s | temporary MiB |")
    print("|---|---|---|---|---|---|")
    medians = {name: statistics.median(values) for name, values in times.items()}
    busy = {name: statistics.median(values) for name, values in work.items()}
    for name, median in medians.items():
        seconds, peak = rows[name]
        ratios = f"{median / medians['plain']:.2f} | {busy[name] / busy['plain']:.2f}"
        print(f"| {name} | {1e3 * median:.0f} | {ratios} | {seconds:.1f} | {peak:.0f} |")


if __name__ == "__main__":
    main()
