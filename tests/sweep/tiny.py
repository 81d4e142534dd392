"""A task small enough for tests: two matmuls on synthetic data, and its sweep file."""

import jax
import jax.numpy as jnp
import numpy as np
import optax


class Tiny:
    def __init__(self, steps=6, factor=1.0):
        self.steps, self.factor = steps, factor
        draw = np.random.default_rng(0)
        x = draw.normal(size=(48, 4)).astype(np.float32)
        y = (x @ np.array([1.0, -2.0, 0.5, 3.0], np.float32) > 0).astype(np.int32)
        self.data = {"train": (x[:32], y[:32]), "test": (x[32:], y[32:])}

    def init(self, key):
        first, head = jax.random.split(key)
        return {
            "first": jax.random.normal(first, (4, 8)) / 2,
            "head": jax.random.normal(head, (8, 2)) / 3,
        }

    def logits(self, params, x):
        with jax.named_scope("first"):
            x = jnp.tanh(x @ params["first"])
        with jax.named_scope("head"):
            return x @ params["head"]

    def loss(self, params, batch, key):
        x, y = batch
        logits = self.logits(params, x) * self.factor * self.factor
        return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

    def batches(self, split, seed):
        x, y = self.data[split]
        draw = np.random.default_rng(seed)
        for _ in range(self.steps):
            index = draw.permutation(len(x))[:16]
            yield x[index], y[index]

    def metrics(self, params, split):
        x, y = self.data[split]
        logits = self.logits(params, x)
        return {
            "accuracy": (logits.argmax(-1) == y).mean(),
            "loss": optax.softmax_cross_entropy_with_integer_labels(logits, y).mean(),
        }

    def optimizer(self):
        return optax.sgd(0.5)


def make(steps=6, factor=1.0):
    return Tiny(steps, factor)


class NoLoss:
    def init(self, key):
        return key

    batches = metrics = init


def config(**changes):
    """The tiny sweep as data; `changes` replace top keys, None removes one."""
    cast = {"dtype": "$dtype", "mode": "$mode", "satmode": "$satmode"}
    raw = {
        "name": "tiny",
        "task": "tests.sweep.tiny:make",
        "seeds": [0, 1],
        "policy": {
            "target": None,
            "rules": [
                {
                    "path": ".*",
                    "ops": "matmul",
                    "input": dict(cast),
                    "weight": cast | {"scale": "amax"},
                }
            ],
        },
        "axes": {
            "dtype": ["fp4_e2m1", "int8"],
            "mode": ["RINT", "TRUNC"],
            "satmode": [True, False],
        },
        "baseline": {"dtype": "fp32"},
    }
    raw |= changes
    return {key: value for key, value in raw.items() if value is not None}
