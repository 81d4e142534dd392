"""What a model has to offer to be swept, and how a sweep file names one."""

import contextlib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import jax

from npusim._errors import ConfigError, message, nearest
from npusim.sweep.config import SweepConfig

METHODS = ("init", "loss", "batches", "metrics")

# Names a sweep file may use for the tasks that come with npusim.
REGISTERED = {
    "digits_mlp": "npusim.sweep.digits:make_mlp",
    "digits_cnn": "npusim.sweep.digits:make_cnn",
}


@runtime_checkable
class Task(Protocol):
    """A model, its data and its optimiser, as a sweep needs them.

    ``init``, ``loss`` and ``metrics`` are traced by JAX; the sweep wraps ``loss`` (with its
    gradient) and ``metrics`` in `npusim.simulate`, so they are written as if there were no NPU.
    A task may also have ``optimizer()``, which returns an optax transformation; the default is
    ``optax.adam(1e-3)``.
    """

    def init(self, key: jax.Array) -> Any:
        """Return the parameters: a pytree of float32 arrays."""
        ...

    def loss(self, params: Any, batch: Any, key: jax.Array) -> jax.Array:
        """Return the scalar to descend on one batch; ``key`` is fresh at each step."""
        ...

    def batches(self, split: str, seed: int) -> Iterable[Any]:
        """Return the batches of the training run, one a step, all of the same shape.

        Called with ``split="train"`` once for each seed, outside of any trace.
        """
        ...

    def metrics(self, params: Any, split: str) -> dict[str, jax.Array]:
        """Return scalars by name, measured on ``split`` (the sweep asks for ``"test"``)."""
        ...


@contextlib.contextmanager
def _import_path(config: SweepConfig) -> Iterator[None]:
    """Let modules beside the sweep file and in the working directory be found, for a moment."""
    added = [str(Path.cwd()), str(Path(config.source).resolve().parent)]
    before = list(sys.path)
    sys.path[:0] = [path for path in added if path not in sys.path]
    try:
        yield
    finally:
        sys.path[:] = before


def load_task(config: SweepConfig) -> Task:
    """Return the task that a sweep file names, made with its ``task_args``.

    Raises:
        ConfigError: no such task, or arguments it does not take, or an object that is none.
    """
    with _import_path(config):
        make = _factory(config)
    _check_arguments(config, make)
    try:
        task = make(**config.task_args)
    except ImportError as error:
        raise _missing(config, "task", error) from error
    missing = [name for name in METHODS if not callable(getattr(task, name, None))]
    if missing:
        raise _fail(
            config,
            "task",
            f"{config.task} returned {type(task).__name__} without {', '.join(missing)}",
            "an object with " + ", ".join(METHODS),
            "Add the missing methods.",
        )
    return task


def _fail(config: SweepConfig, key: str, given: str, allowed: str, remedy: str) -> ConfigError:
    return ConfigError(message(f"{config.source}, key '{key}': {given}", allowed, remedy))


def _missing(config: SweepConfig, key: str, error: ImportError) -> ConfigError:
    name = (getattr(error, "name", None) or "").partition(".")[0]
    if name == "sklearn":
        return _fail(
            config,
            key,
            f"task {config.task!r} without scikit-learn",
            "an environment that has it",
            "Run: pip install 'npusim[experiments]'.",
        )
    return _fail(
        config, key, f"{config.task!r}: {error}", "a module that can be imported", "Correct it."
    )


def _factory(config: SweepConfig) -> Callable[..., Any]:
    path = REGISTERED.get(config.task, config.task)
    module_name, colon, attribute = path.partition(":")
    if not colon or not module_name or not attribute:
        raise _fail(
            config,
            "task",
            f"unknown task {config.task!r}",
            ", ".join(REGISTERED) + ", or an import path 'package.module:function'",
            f"{nearest(config.task, REGISTERED)}Correct the name.",
        )
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise _missing(config, "task", error) from error
    make = getattr(module, attribute, None)
    if not callable(make):
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise _fail(
            config,
            "task",
            f"{module_name} has no function {attribute!r}",
            ", ".join(names) or "a function that returns a task",
            f"{nearest(attribute, names)}Correct the part after the colon.",
        )
    return make


def _check_arguments(config: SweepConfig, make: Callable[..., Any]) -> None:
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):
        return  # a builtin: let the call itself complain
    parameters = signature.parameters.values()
    names = [p.name for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters)
    for name in config.task_args:
        if name not in names and not open_ended:
            raise _fail(
                config,
                f"task_args.{name}",
                f"an argument that {config.task} does not take",
                ", ".join(names) or "none",
                f"{nearest(name, names)}Correct or remove it.",
            )
    required = [p.name for p in parameters if p.default is p.empty and p.name in names]
    for name in required:
        if name not in config.task_args:
            raise _fail(
                config,
                f"task_args.{name}",
                f"an argument that {config.task} needs is missing",
                ", ".join(names),
                "Add it.",
            )
