"""Tasks by name and by import path."""

import importlib
import sys

import jax
import numpy as np
import pytest

from npusim._errors import ConfigError
from npusim.sweep.config import parse_config
from npusim.sweep.tasks import Task, load_task
from tests.sweep.tiny import Tiny, config


def refusal(source="my.yaml", **changes):
    with pytest.raises(ConfigError) as caught:
        load_task(parse_config(config(**changes), source))
    return str(caught.value)


def test_an_import_path_with_arguments():
    task = load_task(parse_config(config(task_args={"steps": 3})))
    assert isinstance(task, Tiny)
    assert isinstance(task, Task)
    assert task.steps == 3


def test_a_module_beside_the_sweep_file_is_found(tmp_path):
    (tmp_path / "mymodel_for_sweep.py").write_text("from tests.sweep.tiny import make\n")
    source = str(tmp_path / "my.yaml")
    before = list(sys.path)
    task = load_task(parse_config(config(task="mymodel_for_sweep:make"), source))
    assert isinstance(task, Tiny)
    assert sys.path == before


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"task": "digits_mpl"},
            (
                "Given: my.yaml, key 'task': unknown task 'digits_mpl'. Allowed: digits_mlp, "
                "digits_cnn, or an import path 'package.module:function'. Did you mean "
                "'digits_mlp'? Correct the name."
            ),
        ),
        (
            {"task": "no_such_module_here:make"},
            (
                "Given: my.yaml, key 'task': 'no_such_module_here:make': No module named "
                "'no_such_module_here'. Allowed: a module that can be imported. Correct it."
            ),
        ),
        (
            {"task": "tests.sweep.tiny:mak"},
            (
                "Given: my.yaml, key 'task': tests.sweep.tiny has no function 'mak'. "
                "Allowed: Tiny, make, NoLoss, config. Did you mean 'make'? Correct the part after "
                "the colon."
            ),
        ),
        (
            {"task": "tests.sweep.tiny:NoLoss"},
            (
                "Given: my.yaml, key 'task': tests.sweep.tiny:NoLoss returned NoLoss without loss. "
                "Allowed: an object with init, loss, batches, metrics. Add the missing methods."
            ),
        ),
        (
            {"task_args": {"step": 3}},
            (
                "Given: my.yaml, key 'task_args.step': an argument that tests.sweep.tiny:make "
                "does not take. Allowed: steps, factor. Did you mean 'steps'? Correct or remove it."
            ),
        ),
    ],
)
def test_refusals(changes, text):
    assert refusal(**changes) == text


def test_without_scikit_learn(monkeypatch):
    monkeypatch.delitem(sys.modules, "npusim.sweep.digits", raising=False)
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    assert refusal(task="digits_mlp") == (
        "Given: my.yaml, key 'task': task 'digits_mlp' without scikit-learn. Allowed: an "
        "environment that has it. Run: pip install 'npusim[experiments]'."
    )


def test_digits_are_the_real_images_in_a_fixed_split():
    digits = importlib.import_module("npusim.sweep.digits")
    task = digits.make_mlp(steps=30)
    images = {split: x for split, (x, _) in task.data.items()}
    assert images["train"].shape == (1348, 8, 8)
    assert images["test"].shape == (449, 8, 8)
    assert images["train"].min() == 0
    assert images["train"].max() == 1
    again = digits.make_mlp(steps=30)
    np.testing.assert_array_equal(again.data["test"][1], task.data["test"][1])
    batches = list(task.batches("train", 3))
    assert len(batches) == 30
    assert {x.shape for x, _ in batches} == {(64, 8, 8)}
    # 21 full batches in an epoch, without an image twice.
    epoch = np.concatenate([x for x, _ in batches[:21]]).reshape(-1, 64)
    train = images["train"].reshape(-1, 64)
    counts = [(train == image).all(1).sum() for image in np.unique(epoch, axis=0)]
    assert sum(counts) >= len(epoch)


@pytest.mark.parametrize("name", ["make_mlp", pytest.param("make_cnn", marks=pytest.mark.slow)])
def test_digits_learn_and_count_lost_images_as_missed(name):
    digits = importlib.import_module("npusim.sweep.digits")
    task = getattr(digits, name)(steps=5)
    params = jax.jit(task.init)(jax.random.key(0))
    batch = next(iter(task.batches("train", 0)))
    loss, grads = jax.jit(jax.value_and_grad(task.loss))(params, batch, jax.random.key(1))
    assert 1.5 < loss < 4
    assert "head" in params["params"]
    assert jax.tree.structure(grads) == jax.tree.structure(params)
    broken = jax.tree.map(lambda x: np.full(x.shape, np.nan, x.dtype), params)
    assert jax.jit(lambda p: task.metrics(p, "test"))(broken)["accuracy"] == 0


def test_a_step_that_is_not_finite_can_be_skipped():
    digits = importlib.import_module("npusim.sweep.digits")
    task = digits.make_mlp(steps=5, skip_nonfinite=True)
    optimizer = task.optimizer()
    params = {"w": np.float32(1)}
    state = optimizer.init(params)
    updates, _ = optimizer.update({"w": np.float32(np.nan)}, state, params)
    assert updates["w"] == 0


def test_digits_refuse_impossible_numbers():
    digits = importlib.import_module("npusim.sweep.digits")
    with pytest.raises(ConfigError) as caught:
        digits.make_mlp(batch_size=5000)
    assert str(caught.value) == (
        "Given: task argument batch_size = 5000. Allowed: a whole number from 1 to 1348. Correct "
        "task_args."
    )
