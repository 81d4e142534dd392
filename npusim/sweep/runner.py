"""Running a sweep: one compiled program for all formats, modes and saturations.

The whole training run is one program: initialisation, a scan over the optimiser steps, and the
held-out metrics, for all seeds side by side. Formats are arguments of it (`FormatParams`), so that
another format is another call and not another compilation.
"""

import datetime
import functools
import importlib.metadata
import platform
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import optax

from npusim._errors import ConfigError, UnusedRuleWarning, message
from npusim.inject import simulate
from npusim.reporting.records import Record, finite
from npusim.sweep.config import SweepConfig
from npusim.sweep.plan import Cell, describe, plan
from npusim.sweep.store import ResultStore
from npusim.sweep.tasks import Task, load_task
from npusim.sweep.watch import Watcher

CURVE_POINTS = 40
TEST_SPLIT = "test"


def versions() -> dict[str, str]:
    """Return the versions that a result may depend on."""
    names = ("npusim", "jax", "jaxlib", "flax", "optax", "numpy")
    found = {name: importlib.metadata.version(name) for name in names}
    device = jax.devices()[0]
    return found | {"python": platform.python_version(), "device": device.device_kind}


def run_sweep(
    config: SweepConfig,
    results_dir: str | Path = "results",
    *,
    fresh: bool = False,
    watcher: Watcher | None = None,
) -> list[Record]:
    """Run every trial of ``config`` that has not finished yet and return all records.

    Each trial is on disk, in ``<results_dir>/<name>/results.jsonl``, before the next group starts,
    so an interrupted sweep goes on where it stopped.

    Args:
        config: from `load_config`.
        results_dir: parent of the sweep's folder.
        fresh: start over; results that are there are kept under another name.
        watcher: told about progress.

    Raises:
        ConfigError: the task, a policy or the results folder does not fit; a rule hit nothing.

    Example:
        >>> from npusim.sweep import load_config, run_sweep
        >>> records = run_sweep(load_config("sweep.yaml"))  # doctest: +SKIP
    """
    watcher = watcher or Watcher()
    cells = plan(config)
    task = load_task(config)
    with ResultStore(Path(results_dir) / config.name, config, fresh=fresh) as store:
        for notice in store.notices:
            watcher.note(notice)
        if store.records and store.records[-1].versions != versions():
            watcher.note("the finished trials were run with other versions; the report lists both")
        done = store.done()
        pending = [
            (cell, left)
            for cell in cells
            if (left := [s for s in config.seeds if _key(cell, s) not in done])
        ]
        programs = {cell.program: cell for cell, _ in reversed(pending)}
        total = len(cells) * len(config.seeds)
        watcher.start(total, total - sum(len(left) for _, left in pending), len(programs))
        if pending:
            _run(config, task, pending, store, watcher)
        return list(store.records)


def _key(cell: Cell, seed: int) -> tuple[str, str, int]:
    return _record_stub(cell, seed).key


def _record_stub(cell: Cell, seed: int, **fields: Any) -> Record:
    empty: dict[str, Any] = {
        "status": "ok",
        "metrics": {},
        "curve": {"step": [], "loss": []},
        "seconds": 0.0,
        "program": 0,
        "compilations": 0,
        "config": {},
        "config_hash": "",
        "versions": {},
        "finished": "",
    }
    target = None if cell.policy is None else cell.policy.target
    return Record(
        kind=cell.kind,
        axes=dict(cell.axes),
        seed=seed,
        policy_hash=cell.policy_hash,
        target=None if target is None else str(target),
        **(empty | fields),
    )


def _run(
    config: SweepConfig,
    task: Task,
    pending: list[tuple[Cell, list[int]]],
    store: ResultStore,
    watcher: Watcher,
) -> None:
    seeds = np.asarray(config.seeds, np.int32)
    batches = jax.device_put(stack_batches(task, config.seeds))
    programs = Programs(config, task, seeds, batches, watcher)
    # Trace before anything trains, so that a rule that hits nothing is told at once.
    for cell in {cell.program: cell for cell, _ in reversed(pending)}.values():
        if len(programs.lowered) < 4:
            programs.lower(cell)
    used = versions()
    for cell, left in pending:
        run, number = programs.get(cell)
        began = time.perf_counter()
        metrics, losses = jax.device_get(run(cell.formats, seeds, batches))
        seconds = (time.perf_counter() - began) / len(config.seeds)
        records = []
        for i, seed in enumerate(config.seeds):
            if seed in left:
                values = {name: finite(value[i]) for name, value in metrics.items()}
                curve = thin(losses[i])
                failed = curve["loss"][-1] is None
                records.append(
                    _record_stub(
                        cell,
                        seed,
                        status="diverged" if failed else "ok",
                        metrics=values,
                        curve=curve,
                        seconds=round(seconds, 4),
                        program=number,
                        compilations=programs.compilations,
                        config=config.to_dict(),
                        config_hash=config.hash,
                        versions=used,
                        finished=datetime.datetime.now(datetime.UTC).isoformat("T", "seconds"),
                    )
                )
        store.append(records)
        watcher.advance(len(records), cell.kind if cell.kind != "trial" else describe(cell.axes))


class Programs:
    """The compiled programs of a sweep, and how many there are."""

    def __init__(self, config: SweepConfig, task: Task, seeds: Any, batches: Any, watcher: Watcher):
        self.config, self.task, self.watcher = config, task, watcher
        self.arguments = (seeds, batches)
        self.lowered: dict[str, Any] = {}
        self._compiled: dict[str, tuple[Callable[..., Any], int]] = {}

    @property
    def compilations(self) -> int:
        """Programs compiled so far."""
        return len(self._compiled)

    def lower(self, cell: Cell) -> Any:
        """Trace the program that ``cell`` runs in, without compiling it."""
        if cell.program not in self.lowered:
            train = functools.partial(train_run, self.task, cell)
            traced = jax.jit(jax.vmap(train, in_axes=(None, 0, 0)))
            try:
                self.lowered[cell.program] = traced.lower(cell.formats, *self.arguments)
            except UnusedRuleWarning as warning:
                raise ConfigError(
                    message(
                        f"{self.config.source}, key 'policy.rules': {warning}",
                        "rules that match at least one operation of the task",
                        "Correct the rule's path or ops, or remove it.",
                    )
                ) from warning
        return self.lowered[cell.program]

    def get(self, cell: Cell) -> tuple[Callable[..., Any], int]:
        """Return the compiled program that ``cell`` runs in and its number, from 1."""
        if cell.program not in self._compiled:
            lowered = self.lower(cell)
            began = time.perf_counter()
            # Compiled ahead of time: another format cannot trigger a compilation unseen.
            program = lowered.compile()
            self._compiled[cell.program] = (program, len(self._compiled) + 1)
            self.lowered[cell.program] = None
            self.watcher.compiled(time.perf_counter() - began)
        return self._compiled[cell.program]


def train_run(
    task: Task, cell: Cell, formats: Any, seed: jax.Array, batches: Any
) -> tuple[dict[str, jax.Array], jax.Array]:
    """Return held-out metrics and the loss at each step of one training run; traceable."""
    policy = cell.traced_policy(formats)
    descend = jax.value_and_grad(task.loss)
    measure = functools.partial(task.metrics, split=TEST_SPLIT)
    if policy is not None:
        # The gradient inside the transform: each backward operation is rounded as the chip would.
        descend = simulate(descend, policy, params=(0,))
        measure = simulate(measure, policy, params=(0,))
    make_optimizer = getattr(task, "optimizer", None)
    optimizer = make_optimizer() if make_optimizer else optax.adam(1e-3)
    init_key, loss_key = jax.random.split(jax.random.key(seed))
    params = task.init(init_key)

    def step(carry: Any, batch: Any) -> tuple[Any, jax.Array]:
        params, state, key = carry
        key, used = jax.random.split(key)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UnusedRuleWarning)
            loss, grads = descend(params, batch, used)
        updates, state = optimizer.update(grads, state, params)
        return (optax.apply_updates(params, updates), state, key), loss

    (params, _, _), losses = jax.lax.scan(step, (params, optimizer.init(params), loss_key), batches)
    with warnings.catch_warnings():
        # A rule for the backward pass has nothing to do here.
        warnings.simplefilter("ignore", UnusedRuleWarning)
        metrics = measure(params)
    if not isinstance(metrics, dict) or not metrics or any(np.shape(m) for m in metrics.values()):
        raise ConfigError(
            message(
                f"metrics of {type(task).__name__}: {jax.tree.map(np.shape, metrics)!r}",
                "a dict from names to scalars, at least one",
                "Return for example {'accuracy': ..., 'loss': ...}.",
            )
        )
    return metrics, losses


def stack_batches(task: Task, seeds: tuple[int, ...]) -> Any:
    """Return the batches of every seed, stacked as ``[seed, step, ...]``.

    Raises:
        ConfigError: there are none, or their shapes or numbers differ.
    """
    runs = []
    for seed in seeds:
        found = list(task.batches("train", seed))
        try:
            runs.append(jax.tree.map(lambda *leaves: np.stack(leaves), *found))
        except (TypeError, ValueError) as error:
            given = f"batches of seed {seed}: {error}" if found else f"no batches for seed {seed}"
            raise _bad_batches(given) from error
    try:
        return jax.tree.map(lambda *leaves: np.stack(leaves), *runs)
    except (TypeError, ValueError) as error:
        raise _bad_batches(f"batches of seeds {list(seeds)}: {error}") from error


def _bad_batches(given: str) -> ConfigError:
    return ConfigError(
        message(
            given,
            "for each seed the same number of batches, all of one structure and shape",
            "Drop an incomplete last batch.",
        )
    )


def thin(losses: np.ndarray, points: int = CURVE_POINTS) -> dict[str, list[Any]]:
    """Return the curve as means over at most ``points`` equal spans, with each span's last step.

    A mean is over the finite losses of its span, and None where there is none: a single step that
    overflowed (and that a loss scaler would skip) does not end the curve.

    Example:
        >>> thin(np.array([4.0, 2.0, np.nan, 1.0, np.nan, np.inf]), points=3)
        {'step': [2, 4, 6], 'loss': [3.0, 1.0, None]}
    """
    spans = np.array_split(np.asarray(losses, np.float64), min(points, len(losses)))
    ends = np.cumsum([len(span) for span in spans])
    kept = [span[np.isfinite(span)] for span in spans]
    values = [finite(span.mean()) if len(span) else None for span in kept]
    return {"step": [int(end) for end in ends], "loss": values}
