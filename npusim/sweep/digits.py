"""The built-in tasks: scikit-learn's 1,797 handwritten digits and two small Flax models.

Importing this module needs scikit-learn (``pip install 'npusim[experiments]'``); the images come
with that package, so nothing is downloaded.
"""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import linen as nn
from sklearn.datasets import load_digits

from npusim._errors import ConfigError, message

CLASSES = 10
TEST_SHARE = 0.25
# The split is part of the task: every seed and every run is held to the same images.
SPLIT_SEED = 20240229


class DigitsMLP(nn.Module):
    """64 pixels, two hidden layers, ten classes. Paths: ``hidden_0``, ``hidden_1``, ``head``."""

    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Map ``[..., 8, 8]`` images to ``[..., 10]`` logits."""
        x = x.reshape((*x.shape[:-2], 64))
        for i in range(2):
            x = nn.relu(nn.Dense(self.width, name=f"hidden_{i}")(x))
        return nn.Dense(CLASSES, name="head")(x)


class DigitsCNN(nn.Module):
    """Two 3x3 convolutions and a classifier. Paths: ``conv_0``, ``conv_1``, ``head``."""

    width: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        """Map ``[..., 8, 8]`` images to ``[..., 10]`` logits."""
        x = x[..., None]
        for i in range(2):
            x = nn.Conv(self.width * (i + 1), (3, 3), (2, 2), name=f"conv_{i}")(x)
            x = nn.relu(x)
        x = x.reshape((*x.shape[:-3], -1))
        return nn.Dense(CLASSES, name="head")(x)


class Digits:
    """Classify the digits with a Flax model; the `Task` of a sweep.

    Args:
        model: maps images to logits.
        steps: optimiser steps.
        batch_size: images a step, drawn in shuffled epochs.
        learning_rate: Adam's.
        skip_nonfinite: leave the parameters alone at a step whose gradient holds an infinity or
            NaN, as loss scalers do when the NPU's overflow flag is up.
    """

    def __init__(
        self,
        model: nn.Module,
        steps: int,
        batch_size: int,
        learning_rate: float,
        skip_nonfinite: bool,
    ):
        self.model = model
        self.steps, self.batch_size, self.learning_rate = steps, batch_size, learning_rate
        self.skip_nonfinite = skip_nonfinite
        bunch: Any = load_digits()
        # Pixels are whole numbers from 0 to 16; scaled to [0, 1].
        images = bunch.images.astype(np.float32) / 16
        order = np.random.default_rng(SPLIT_SEED).permutation(len(images))
        held_out = round(TEST_SHARE * len(images))
        self.data = {
            "test": (images[order[:held_out]], bunch.target[order[:held_out]].astype(np.int32)),
            "train": (images[order[held_out:]], bunch.target[order[held_out:]].astype(np.int32)),
        }
        for name, value, high in (
            ("steps", steps, 10**6),
            ("batch_size", batch_size, len(self.data["train"][0])),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= high:
                raise ConfigError(
                    message(
                        f"task argument {name} = {value!r}",
                        f"a whole number from 1 to {high}",
                        "Correct task_args.",
                    )
                )

    def init(self, key: jax.Array) -> Any:
        """Flax variables, drawn from ``key``."""
        return self.model.init(key, jnp.zeros((1, 8, 8)))

    def loss(self, params: Any, batch: Any, key: jax.Array) -> jax.Array:
        """Mean cross entropy; no randomness of its own, so ``key`` is not used."""
        images, labels = batch
        return self._cross_entropy(self._logits(params, images), labels)

    def _logits(self, params: Any, images: Any) -> jax.Array:
        logits = self.model.apply(params, images)
        assert isinstance(logits, jax.Array)
        return logits

    @staticmethod
    def _cross_entropy(logits: jax.Array, labels: Any) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    def batches(self, split: str, seed: int) -> Iterator[Any]:
        """Shuffled epochs, until the steps are used up; an incomplete last batch is dropped."""
        images, labels = self.data[split]
        generator = np.random.default_rng(seed)
        order = np.empty(0, np.int64)
        for _ in range(self.steps):
            if len(order) < self.batch_size:
                order = generator.permutation(len(images))
            index, order = order[: self.batch_size], order[self.batch_size :]
            yield images[index], labels[index]

    def metrics(self, params: Any, split: str) -> dict[str, jax.Array]:
        """Accuracy and mean cross entropy; an image with a logit that is not finite is missed."""
        images, labels = self.data[split]
        logits = self._logits(params, images)
        hit = (jnp.argmax(logits, -1) == labels) & jnp.isfinite(logits).all(-1)
        return {"accuracy": hit.mean(), "loss": self._cross_entropy(logits, labels)}

    def optimizer(self) -> optax.GradientTransformation:
        """Adam, which passes over steps that are not finite if asked to."""
        adam = optax.adam(self.learning_rate)
        return optax.apply_if_finite(adam, self.steps) if self.skip_nonfinite else adam


def make_mlp(
    steps: int = 300,
    batch_size: int = 64,
    learning_rate: float = 2e-3,
    width: int = 64,
    skip_nonfinite: bool = False,
) -> Digits:
    """Return the digits task with a multi-layer perceptron."""
    model = DigitsMLP(width)
    return Digits(model, steps, batch_size, learning_rate, skip_nonfinite)


def make_cnn(
    steps: int = 300,
    batch_size: int = 64,
    learning_rate: float = 2e-3,
    width: int = 8,
    skip_nonfinite: bool = False,
) -> Digits:
    """Return the digits task with a small convolutional network."""
    model = DigitsCNN(width)
    return Digits(model, steps, batch_size, learning_rate, skip_nonfinite)
