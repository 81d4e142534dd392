"""A complex state-space layer, a U-Net and Linen's lifted transforms."""

import flax.linen as nn
import jax
import jax.numpy as jnp

from tests.flax.zoo.models import WIDTH


class StateSpace(nn.Module):
    """A linear recurrent unit: complex diagonal recurrence, parameters as real pairs."""

    state: int = 6
    parallel: bool = True

    @nn.compact
    def __call__(self, u):
        def pair(name, shape):
            re = self.param(f"{name}_re", nn.initializers.normal(0.3), shape)
            return re + 1j * self.param(f"{name}_im", nn.initializers.normal(0.3), shape)

        width = u.shape[-1]
        decay = self.param("decay", nn.initializers.constant(-0.5), (self.state,))
        angle = self.param("angle", nn.initializers.uniform(1.0), (self.state,))
        skip = self.param("skip", nn.initializers.ones, (width,))
        turn = jnp.exp(-jnp.exp(decay) + 1j * angle)
        driven = u.astype(jnp.complex64) @ pair("b", (width, self.state))
        if self.parallel:

            def combine(first, second):
                return second[0] * first[0], second[0] * first[1] + second[1]

            turns = jnp.broadcast_to(turn, driven.shape)
            states = jax.lax.associative_scan(combine, (turns, driven), axis=1)[1]
        else:

            def step(state, drive):
                state = turn * state + drive
                return state, state

            start = jnp.zeros_like(driven[:, 0])
            states = jnp.moveaxis(jax.lax.scan(step, start, jnp.moveaxis(driven, 1, 0))[1], 0, 1)
        return (states @ pair("c", (self.state, width))).real + skip * u


class Lru(nn.Module):
    """Real layers around two state-space layers."""

    parallel: bool = True

    @nn.compact
    def __call__(self, x):
        x = nn.Dense(WIDTH, name="embed")(x)
        for i in range(2):
            h = StateSpace(parallel=self.parallel, name=f"ssm_{i}")(
                nn.LayerNorm(name=f"norm_{i}")(x)
            )
            x = x + nn.Dense(WIDTH, name=f"mix_{i}")(nn.gelu(h))
        return nn.Dense(3, name="head")(x.mean(1))


class ResBlock(nn.Module):
    features: int
    dropout: float

    @nn.compact
    def __call__(self, x, time, training):
        h = nn.Conv(self.features, (3, 3), name="conv_1")(
            nn.silu(nn.GroupNorm(2, name="norm_1")(x))
        )
        h = h + nn.Dense(self.features, name="time")(nn.silu(time))[:, None, None]
        h = nn.silu(nn.GroupNorm(2, name="norm_2")(h))
        h = nn.Dropout(self.dropout, deterministic=not training)(h)
        h = nn.Conv(self.features, (3, 3), name="conv_2")(h)
        if x.shape[-1] != self.features:
            x = nn.Conv(self.features, (1, 1), name="shortcut")(x)
        return x + h


class UNet(nn.Module):
    """Predicts the noise in an image at a time: one level down, one up, a skip between."""

    dropout: float = 0.2

    @nn.compact
    def __call__(self, images, time, training=False):
        angles = time[:, None] * jnp.array([1.0, 10.0, 100.0])
        time = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
        time = nn.Dense(WIDTH, name="time_2")(nn.silu(nn.Dense(WIDTH, name="time_1")(time)))
        x = nn.Conv(4, (3, 3), name="stem")(images)
        x = skip = ResBlock(4, self.dropout, name="down")(x, time, training)
        x = nn.Conv(8, (3, 3), strides=2, name="halve")(x)
        x = ResBlock(8, self.dropout, name="middle")(x, time, training)
        x = nn.ConvTranspose(4, (2, 2), strides=(2, 2), name="double")(x)
        x = jnp.concatenate([x, skip], axis=-1)
        x = ResBlock(4, self.dropout, name="up")(x, time, training)
        x = nn.silu(nn.GroupNorm(2, name="norm")(x))
        return nn.Conv(1, (3, 3), name="out")(x)
