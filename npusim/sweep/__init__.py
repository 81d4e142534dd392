"""Sweeps: one model trained under every combination of format, mode and saturation.

`load_config` reads and checks the YAML file, `run_sweep` trains what is missing and keeps the
results, `Task` is what a model has to offer to be swept.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npusim.sweep.config import SweepConfig as SweepConfig
    from npusim.sweep.config import load_config as load_config
    from npusim.sweep.runner import run_sweep as run_sweep
    from npusim.sweep.tasks import Task as Task
    from npusim.sweep.watch import Watcher as Watcher

_HOMES = {
    "SweepConfig": "config",
    "Task": "tasks",
    "Watcher": "watch",
    "load_config": "config",
    "run_sweep": "runner",
}

__all__ = ["SweepConfig", "Task", "Watcher", "load_config", "run_sweep"]


def __getattr__(name: str) -> Any:
    # JAX is heavy, and reading a file does not need it.
    if name in _HOMES:
        import importlib

        return getattr(importlib.import_module(f"npusim.sweep.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
