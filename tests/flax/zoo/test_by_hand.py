"""Independent references: the same computation with casts written at each product."""

import functools

import jax
import numpy as np
import optax
import pytest

from tests.flax.zoo import by_hand, cases, checks, models
from tests.helpers import same_arrays

POLICY = checks.policy_file("fp8_unscaled")


def vit_of_two():
    model = models.ViT(layers=2)
    return cases.classifier(model, cases.IMAGES, cases.CLASSES, [])


WRITTEN = {
    "lstm": (cases.MAKE["lstm"], by_hand.lstm, cases.CLASSES),
    "moe": (cases.MAKE["moe"], by_hand.moe, np.arange(10) % 3),
    "vit": (vit_of_two, functools.partial(by_hand.vit, layers=2), cases.CLASSES),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITTEN)
def test_bits_of_loss_and_gradients(name):
    make, written, labels = WRITTEN[name]
    case = make()

    def loss(params, *inputs):
        logits = written(params, *inputs)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    want = jax.jit(jax.value_and_grad(loss))(*case.args)
    same_arrays(case.under(POLICY), want, "simulate(grad)")
    same_arrays(case.straight_through(POLICY), want, "grad(simulate)")
