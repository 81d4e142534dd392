"""Mixed-precision recipes on a small language model: which formats need a loss scale?

    python experiments/mixed_precision_lm.py                       # every recipe, three seeds
    python experiments/mixed_precision_lm.py --seeds 0 --steps 100 # a first look
    python experiments/mixed_precision_lm.py --recipes fp8 --loss-scales none 1024

A byte-level transformer (Flax Linen, 2 blocks) learns the text that CPython carries as
pydoc_data.topics. Recipes run without a loss scale, with a static one and with torch_npu's dynamic
rule; plain float32 is the baseline. The casts sit in the gradient too
(simulate(value_and_grad(loss))), so each backward matmul is rounded as the NPU would round it.

Recipes:
  fp16_o2   MindSpore O2 (the preset mindspore_o2_fp16): weights visible in fp16 with a float32
            master copy, everything in fp16 but the insides of norms, softmax and GELU, which are
            one operator each on the NPU, and the loss
  bf16      the same in bf16 (mindspore_o2_bf16), under the first loss scale alone: with float32's
            exponents a power of two moves nothing
  fp8       matmuls with e4m3 inputs and weights, e5m2 gradients, fp16 results; no tensor scales
  fp8_amax  the same with per-tensor amax scales (not among the defaults)
  hif8      matmuls with HiFloat8 inputs, weights and gradients, fp16 results; no tensor scales

The question: an earlier, smaller run saw unscaled e5m2 gradients ruin the training (loss 3.34
against 1.98 plain) and a scale of 1024 repair it (2.00). The last lines say whether that holds.
The loss is a mean over the positions of a step, which divides every gradient by their number: with
fewer (--length 64) less of it falls below the smallest e5m2 number, and the harm shrinks.
"""

import functools
import hashlib
import time
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from study import Clock, Results, Study, console, guarded, parser, report, thin

import npusim as npu
from npusim.reporting.summary import Summary

HELD_OUT = 0.1
EVALUATED = 8  # held-out batches
RUINED, REPAIRED = 0.3, 0.05  # nats a byte above plain
RECIPES = ("fp16_o2", "bf16", "fp8", "fp8_amax", "hif8")
SCALES = ("none", "1024", "dynamic")


class Block(nn.Module):
    """Attention and a two-layer perceptron, normalised before."""

    width: int

    @nn.compact
    def __call__(self, x: jax.Array, mask: jax.Array) -> jax.Array:
        """Map ``[batch, length, width]`` to the same."""
        attention = nn.MultiHeadDotProductAttention(num_heads=4, name="attention")
        x = x + attention(nn.LayerNorm(name="norm_0")(x), mask=mask)
        y = nn.Dense(4 * self.width, name="up")(nn.LayerNorm(name="norm_1")(x))
        return x + nn.Dense(self.width, name="down")(nn.gelu(y))


class LM(nn.Module):
    """Bytes in, logits of the next byte out."""

    width: int
    layers: int
    length: int

    @nn.compact
    def __call__(self, tokens: jax.Array) -> jax.Array:
        """Map ``[batch, length]`` bytes to ``[batch, length, 256]`` logits."""
        x = nn.Embed(256, self.width, name="bytes")(tokens)
        x = x + nn.Embed(self.length, self.width, name="places")(jnp.arange(tokens.shape[1]))
        mask = nn.make_causal_mask(tokens)
        for i in range(self.layers):
            x = Block(self.width, name=f"block_{i}")(x, mask)
        return nn.Dense(256, name="head")(nn.LayerNorm(name="norm")(x))


def text() -> np.ndarray:
    """The bytes of pydoc_data.topics, topics in alphabetical order."""
    from pydoc_data.topics import topics

    joined = "\n\n".join(f"{name}\n{topics[name]}" for name in sorted(topics))
    return np.frombuffer(joined.encode(), np.uint8)


def batches(data: np.ndarray, size: "Size", steps: int, seed: int) -> np.ndarray:
    """Random windows, ``[steps, batch, length + 1]``."""
    starts = np.random.default_rng(seed).integers(0, len(data) - size.length, (steps, size.batch))
    return data[starts[..., None] + np.arange(size.length + 1)]


def policy_of(recipe: str) -> npu.Policy:
    """The casts of a recipe. The loss is computed outside of the module and stays float32."""
    if recipe == "fp32":
        return npu.Policy([])
    if recipe in ("fp16_o2", "bf16"):
        # INF_NAN, the default of A2 and A3: an overflow is an infinity, which the scaler sees.
        name = "mindspore_o2_fp16" if recipe == "fp16_o2" else "mindspore_o2_bf16"
        return npu.preset(name, path="^LM")
    scale = "amax" if recipe == "fp8_amax" else "none"
    if recipe == "hif8":
        there = npu.CastSpec("hif8", "ROUND", "ON")
        back = npu.CastSpec("hif8", "ROUND", "OFF")
    else:
        there = npu.CastSpec("fp8_e4m3", "RINT", "ON", scale=scale)
        back = npu.CastSpec("fp8_e5m2", "RINT", "OFF", scale=scale)
    result = npu.CastSpec("fp16", "RINT", "OFF")
    return npu.Policy([npu.Rule("^LM", input=there, weight=there, output=result, grad=back)])


def scale_of(name: str) -> Any:
    """The loss scale: none (a scale of 1), a fixed number, or torch_npu's rule."""
    if name == "dynamic":
        # Its defaults but for the interval: 2000 clean steps are more than the whole run has.
        return npu.training.LossScale.dynamic("torch_npu", interval=100)
    value = 1.0 if name == "none" else float(name)
    return npu.training.LossScale.static(value)


def optimizer_of(recipe: str, steps: int, loss_scale: Any) -> optax.GradientTransformationExtraArgs:
    """AdamW with warmup; fp16 and bf16 recipes show 16-bit weights of a float32 master copy."""
    rate = optax.warmup_cosine_decay_schedule(0.0, 3e-3, max(1, steps // 10), steps, 3e-4)
    inner = optax.adamw(rate, weight_decay=0.01)
    visible = {"fp16_o2": "fp16", "bf16": "bf16"}.get(recipe)
    if visible is not None:
        inner = npu.training.stored_in(inner, visible, master="fp32")
    return npu.training.with_loss_scale(inner, loss_scale)


def cross_entropy(model: LM, params: Any, batch: jax.Array) -> jax.Array:
    """Mean over all positions, in nats a byte."""
    tokens = batch.astype(jnp.int32)
    logits = model.apply(params, tokens[:, :-1])
    assert isinstance(logits, jax.Array)
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


class Size(NamedTuple):
    """Size of model and batches: what compiled programs are kept by."""

    width: int
    layers: int
    batch: int
    length: int

    @property
    def model(self) -> LM:
        """The model of this size."""
        return LM(self.width, self.layers, self.length)


@functools.cache
def initializer(size: Size) -> Any:
    """Flax variables from a key, compiled."""
    model = size.model
    return jax.jit(lambda key: model.init(key, jnp.zeros((1, size.length), jnp.int32)))


@functools.cache
def evaluation(size: Size, recipe: str) -> Any:
    """The loss under a recipe's forward casts, compiled."""
    rules = [rule.to_dict() for rule in policy_of(recipe).rules]
    # A forward pass has no gradients, and a rule that hits nothing is warned of.
    kept = [{k: v for k, v in rule.items() if k != "grad"} for rule in rules]
    policy = npu.Policy.from_dict({"rules": [rule | {"direction": "forward"} for rule in kept]})
    return jax.jit(npu.simulate(functools.partial(cross_entropy, size.model), policy, params=(0,)))


@functools.cache
class Trainer:
    """One recipe, with a scale that stays or one that moves: compiled once."""

    def __init__(self, size: Size, recipe: str, moves: bool, steps: int):
        self.size, self.recipe, self.steps = size, recipe, steps
        self.policy = policy_of(recipe)
        self.loss_scale = scale_of("dynamic" if moves else "none")
        self.optimizer = optimizer_of(recipe, steps, self.loss_scale)
        self.step = jax.jit(self._step, donate_argnums=(0, 1))

    def _step(self, params: Any, state: Any, batch: jax.Array) -> tuple[Any, Any, jax.Array]:
        def loss(params: Any, batch: jax.Array, scale: Any) -> tuple[jax.Array, jax.Array]:
            value = cross_entropy(self.size.model, params, batch)
            return self.loss_scale.scale(value, scale), value

        descend = jax.value_and_grad(loss, has_aux=True)
        (_, value), grads = npu.simulate(descend, self.policy, params=(0,))(
            params, batch, state.loss_scale
        )
        updates, state = self.optimizer.update(grads, state, params)
        return optax.apply_updates(params, updates), state, value

    def run(
        self, scale: str, seed: int, train: np.ndarray, held_out: np.ndarray
    ) -> tuple[dict[str, float], list[float]]:
        """Train from a seed; held-out metrics and the loss at each step."""
        params: Any = initializer(self.size)(jax.random.key(seed))
        state: Any = self.optimizer.init(params)
        # Scales that stay differ in the state alone.
        state = state._replace(loss_scale=scale_of(scale).init())
        losses = []
        for batch in batches(train, self.size, self.steps, seed):
            params, state, value = self.step(params, state, batch)
            losses.append(value)
        losses = [float(v) for v in jax.device_get(losses)]
        windows = batches(held_out, self.size, EVALUATED, 0)
        casts, plain = evaluation(self.size, self.recipe), evaluation(self.size, "fp32")
        metrics = {
            "loss": float(np.mean([casts(params, batch) for batch in windows])),
            # The same weights without casts: what is left is what training lost.
            "loss_fp32": float(np.mean([plain(params, batch) for batch in windows])),
            "last_train_loss": float(np.mean(losses[-max(1, self.steps // 20) :])),
            "skipped_steps": int(state.loss_scale.skipped),
            "last_scale": float(state.loss_scale.scale),
        }
        return metrics, losses


def verdict(summary: Summary) -> list[str]:
    """Whether unscaled e5m2 gradients ruin the run and a scale repairs it, seed against seed."""

    def losses(recipe: str, scale: str) -> dict[int, float]:
        axes = {"recipe": recipe, "loss_scale": scale}
        runs = [record for record in summary.records if record.axes == axes]
        # A run without a finite loss lost everything.
        return {r.seed: np.inf if (v := r.metrics["loss"]) is None else v for r in runs}

    plain, bare, scaled = losses("fp32", "none"), losses("fp8", "none"), losses("fp8", "1024")
    seeds = sorted(plain.keys() & bare.keys() & scaled.keys())
    if not seeds:
        return ["Without fp8 at loss scales none and 1024 and the baseline there is no verdict."]
    harm = [bare[seed] - plain[seed] for seed in seeds]
    left = [scaled[seed] - plain[seed] for seed in seeds]
    ruined, repaired = min(harm) > RUINED, max(left) < REPAIRED
    if ruined:
        claim = "reproduced" if repaired else "half reproduced: 1024 does not repair it"
    elif min(harm) > REPAIRED and repaired:
        claim = "found again, but weaker: the scale repairs what is no ruin here"
    else:
        claim = "refuted: the loss scale makes no such difference"
    rows = [("plain", plain), ("fp8 without loss scale", bare), ("fp8 with 1024", scaled)]
    means = [f"{name} {np.mean([found[s] for s in seeds]):.3f}" for name, found in rows]
    return [
        f"Held-out loss, mean over seeds {seeds}: {', '.join(means)}.",
        f"Against plain, by seed: without scale {listed(harm)}; with 1024 {listed(left)}.",
        f"The earlier finding is {claim}.",
    ]


def listed(differences: list[float]) -> str:
    """Differences with their signs."""
    return ", ".join(f"{value:+.3f}" for value in differences)


def main(argv: list[str] | None = None) -> int:
    arguments = parser(__doc__, seeds=[0, 1, 2], steps=240)
    add = arguments.add_argument
    defaults = [name for name in RECIPES if name != "fp8_amax"]
    add("--recipes", nargs="+", choices=RECIPES, default=defaults, help="default: %(default)s")
    add("--loss-scales", nargs="+", choices=SCALES, default=list(SCALES), help="default: all")
    add("--width", type=int, default=64, help="width of the model (%(default)s)")
    add("--layers", type=int, default=2, help="blocks (%(default)s)")
    add("--batch", type=int, default=16, help="sequences a step (%(default)s)")
    add("--length", type=int, default=128, help="bytes a sequence (%(default)s)")
    given = arguments.parse_args(argv)

    data = text()
    digest = hashlib.sha256(data.tobytes()).hexdigest()
    console.print(f"text: {len(data)} bytes of pydoc_data.topics, sha256 {digest}")
    console.print("the text differs between Python versions, and losses with it")
    cut = int(len(data) * (1 - HELD_OUT))
    size = Size(given.width, given.layers, given.batch, given.length)
    study = Study(
        "mixed_precision_lm",
        {"recipe": given.recipes, "loss_scale": given.loss_scales},
        given.seeds,
        {"recipe": "fp32", "loss_scale": "none"},
        {
            "steps": given.steps,
            **size._asdict(),
            "text_sha256": digest,
        },
        [
            {"recipe": "bf16", "loss_scale": scale}
            for scale in given.loss_scales[1:]
            if "bf16" in given.recipes
        ],
    )
    results = Results(study, given.results_dir)
    runs = [("baseline", study.baseline), *(("trial", axes) for axes in study.combinations)]

    def run() -> None:
        pending = [
            (kind, axes, seed)
            for kind, axes in runs
            for seed in given.seeds
            if not results.has(kind, axes, seed)
        ]
        clock, compiled = Clock(study.planned, study.planned - len(pending)), set()
        for kind, axes, seed in pending:
            recipe, scale = axes["recipe"], axes["loss_scale"]
            moves = scale == "dynamic"
            trainer = Trainer(size, recipe, moves, given.steps)
            compiled.add((recipe, moves))
            began = time.perf_counter()
            metrics, losses = trainer.run(scale, seed, data[:cut], data[cut:])
            seconds = time.perf_counter() - began
            results.add(
                kind,
                axes,
                seed,
                metrics,
                thin(losses),
                seconds,
                policy_hash=trainer.policy.hash(),
                compilations=len(compiled),
            )
            loss = f"held-out loss {metrics['loss']:.3f}"
            clock.tick(f"{recipe}, loss scale {scale}, seed {seed}: {loss} ({seconds:.0f} s)")

    finish = functools.partial(report, results, verdict)
    return guarded((lambda: None) if given.report_only else run, finish)


if __name__ == "__main__":
    raise SystemExit(main())
