"""Quantization-aware against post-training quantization of the digits models.

    python experiments/qat_digits.py                  # both models, six formats, six modes
    python experiments/qat_digits.py --models mlp --formats int4 fp4_e2m1 --seeds 0

A float32 checkpoint is trained first. Then, for each format and CastMode, with one amax scale a
tensor on the inputs and weights of every matmul and convolution:

  ptq       the checkpoint as it is, quantized
  ptq_long  the checkpoint after --tune more float steps, quantized: the control for qat, which
            gets the same steps, batches and learning rate
  qat       --tune steps of grad(simulate(loss)): straight-through, the forward pass quantized

The baseline is the float network after those more steps, not quantized. Accuracy is on held-out
images. Formats are arguments of the compiled programs, seeds run side by side: five compilations a
model.
"""

import functools
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from study import Clock, Results, Study, console, guarded, parser, report, said, spread, thin

import npusim as npu
from npusim.reporting.records import finite
from npusim.reporting.summary import Summary
from npusim.sweep.digits import Digits, make_cnn, make_mlp

FORMATS = ("int8", "int4", "fp8_e4m3", "fp8_e5m2", "fp4_e2m1", "fp4_e1m2")
MODES = ("RINT", "FLOOR", "CEIL", "ROUND", "TRUNC", "ODD")
METHODS = ("ptq", "ptq_long", "qat")
MODELS = {"mlp": make_mlp, "cnn": make_cnn}
PROGRAMS = 5
TUNING_RATE = 5e-4
TUNING_SEED = 1000  # batches of the second phase: other ones than the first phase saw


def policy_of(fmt: Any, mode: str | None = None) -> npu.Policy:
    """Inputs and weights of every matmul and convolution, one amax scale a tensor."""
    spec = npu.CastSpec(fmt, mode, scale="amax")
    return npu.Policy([npu.Rule(ops=["matmul", "conv"], input=spec, weight=spec)])


class Programs:
    """The compiled programs of one model; the first axis of everything is the seed."""

    def __init__(self, task: Digits, tuning: Digits):
        self.task, self.tuning = task, tuning
        self.pretrain = jax.jit(jax.vmap(self._pretrain))
        self.tune = jax.jit(jax.vmap(self._tune))
        self.tune_quantized = jax.jit(jax.vmap(self._tune, in_axes=(0, 0, None)))
        self.measure = jax.jit(jax.vmap(self._measure))
        self.measure_quantized = jax.jit(jax.vmap(self._measure, in_axes=(0, None)))

    def batches(self, task: Digits, seeds: list[int]) -> Any:
        """The batches of all seeds, ``[seed, step, ...]``."""
        runs = [list(task.batches("train", seed)) for seed in seeds]
        stacked = [[np.stack(part) for part in zip(*run, strict=True)] for run in runs]
        return tuple(np.stack(part) for part in zip(*stacked, strict=True))

    def _descend(self, task: Digits, loss: Any, params: Any, batches: Any) -> tuple[Any, Any]:
        optimizer = task.optimizer()

        def step(carry: Any, batch: Any) -> tuple[Any, jax.Array]:
            params, state = carry
            value, grads = jax.value_and_grad(loss)(params, batch)
            updates, state = optimizer.update(grads, state, params)
            return (optax.apply_updates(params, updates), state), value

        (params, _), losses = jax.lax.scan(step, (params, optimizer.init(params)), batches)
        return params, losses

    def _loss(self, params: Any, batch: Any) -> jax.Array:
        return self.task.loss(params, batch, jax.random.key(0))  # it draws nothing

    def _pretrain(self, seed: jax.Array, batches: Any) -> Any:
        params = self.task.init(jax.random.key(seed))
        return self._descend(self.task, self._loss, params, batches)[0]

    def _tune(self, params: Any, batches: Any, fmt: Any = None) -> tuple[Any, jax.Array]:
        loss = self._loss
        if fmt is not None:
            # The derivative of the simulated loss: straight-through, for training only.
            loss = npu.simulate(loss, policy_of(fmt), params=(0,))
        return self._descend(self.tuning, loss, params, batches)

    def _measure(self, params: Any, fmt: Any = None) -> dict[str, jax.Array]:
        def measure(params: Any) -> dict[str, jax.Array]:
            trained = self.task.metrics(params, "train")["loss"]
            return self.task.metrics(params, "test") | {"train_loss": trained}

        if fmt is not None:
            measure = npu.simulate(measure, policy_of(fmt), params=(0,))
        return measure(params)


def verdict(summary: Summary) -> list[str]:
    """For each format at its best mode: what tuning wins back, and what the mode costs."""
    lines = [f"Held-out accuracy of the float network: {said(spread(summary, 'accuracy'))}."]
    for fmt in summary.axes["dtype"]:
        parts = []
        for method in METHODS:
            found = {
                mode: value
                for mode in summary.axes["mode"]
                if (value := spread(summary, "accuracy", method=method, dtype=fmt, mode=mode))
            }
            if found:
                best = max(found, key=lambda mode: found[mode][0])
                worst = min(found, key=lambda mode: found[mode][0])
                parts.append(
                    f"{method} {said(found[best])} with {best}, {said(found[worst])} with {worst}"
                )
        lines.append(f"{fmt}: " + "; ".join(parts) + ".")
    return lines


def run_model(results: Results, programs: Programs, given: Any) -> None:
    """Everything that is not finished for one model; one line of results a seed."""
    seeds = given.seeds
    names: dict[str, list[dict[str, Any]]] = {
        "baseline": [{"method": "float", "dtype": "fp32", "mode": None}],
        "trial": [
            {"method": method, "dtype": fmt, "mode": mode}
            for method in METHODS
            for fmt in given.formats
            for mode in given.modes
        ],
    }
    pending = [
        (kind, axes)
        for kind, cells in names.items()
        for axes in cells
        if not all(results.has(kind, axes, seed) for seed in seeds)
    ]
    total = sum(map(len, names.values()))
    clock = Clock(total, total - len(pending))
    if not pending:
        return
    first = programs.batches(programs.task, seeds)
    second = programs.batches(programs.tuning, [seed + TUNING_SEED for seed in seeds])
    # Not stored: the same seeds give the same checkpoint again, in seconds.
    checkpoint = programs.pretrain(jnp.asarray(seeds), first)
    longer, float_losses = programs.tune(checkpoint, second)
    for kind, axes in pending:
        began = time.perf_counter()
        if kind == "baseline":
            metrics, losses, policy = programs.measure(longer), float_losses, npu.Policy([])
        else:
            fmt, mode, method = axes["dtype"], axes["mode"], axes["method"]
            policy = policy_of(fmt, mode)
            params = npu.FormatParams.of(fmt, mode)
            weights = longer if method == "ptq_long" else checkpoint
            if method == "qat":
                weights, losses = programs.tune_quantized(checkpoint, second, params)
            else:
                losses = None
            metrics = programs.measure_quantized(weights, params)
        metrics = jax.device_get(metrics)
        seconds = (time.perf_counter() - began) / len(seeds)
        for i, seed in enumerate(seeds):
            if results.has(kind, axes, seed):
                continue
            if losses is None:
                # Nothing is trained: a level line to hold the others against.
                level = finite(metrics["train_loss"][i])
                curve = {"step": [1, given.tune], "loss": [level, level]}
            else:
                curve = thin(np.asarray(losses[i]))
            results.add(
                kind,
                axes,
                seed,
                {name: value[i] for name, value in metrics.items()},
                curve,
                seconds,
                policy_hash=policy.hash(),
                compilations=PROGRAMS,
            )
        label = " ".join(str(v) for v in axes.values() if v)
        clock.tick(f"{label}: accuracy {np.mean(metrics['accuracy']):.3f}")


def main(argv: list[str] | None = None) -> int:
    arguments = parser(__doc__, seeds=[0, 1, 2], steps=300)
    add = arguments.add_argument
    add("--tune", type=int, default=150, help="steps of the second phase (%(default)s)")
    add("--models", nargs="+", choices=list(MODELS), default=list(MODELS), help="default: both")
    add("--formats", nargs="+", default=list(FORMATS), help="default: %(default)s")
    add("--modes", nargs="+", choices=MODES, default=list(MODES), help="default: all")
    given = arguments.parse_args(argv)
    code = 0
    for name in given.models:
        study = Study(
            f"qat_digits_{name}",
            {"method": list(METHODS), "dtype": given.formats, "mode": given.modes},
            given.seeds,
            {"method": "float", "dtype": "fp32", "mode": None},
            {"steps": given.steps, "tune": given.tune, "tuning_rate": TUNING_RATE},
        )
        console.rule(study.name)
        results = Results(study, given.results_dir)
        programs = Programs(
            MODELS[name](steps=given.steps),
            MODELS[name](steps=given.tune, learning_rate=TUNING_RATE),
        )
        run = functools.partial(run_model, results, programs, given)
        finish = functools.partial(report, results, verdict)
        code = guarded((lambda: None) if given.report_only else run, finish)
        if code:
            break
    return code


if __name__ == "__main__":
    raise SystemExit(main())
