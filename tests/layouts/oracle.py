"""The private formats as index formulae, in plain Python.

Each returns the stored shape and the place of an element. Nothing here imports the package under
test: the formulae are those of the vendor's conversion code, one by one.
"""

import itertools
import math


def ceil(a, b):
    return -(-a // b)


def five_d(shape, c0):
    n, c, h, w = shape
    return (n, ceil(c, c0), h, w, c0), lambda n, c, h, w: (n, c // c0, h, w, c % c0)


def six_d(shape, c0):
    n, c, d, h, w = shape
    return (n, d, ceil(c, c0), h, w, c0), lambda n, c, d, h, w: (n, d, c // c0, h, w, c % c0)


def fractal_z(shape, c0):
    n, c, h, w = shape
    return (ceil(c, c0) * h * w, ceil(n, 16), 16, c0), lambda n, c, i, j: (
        ((c // c0) * h + i) * w + j,
        n // 16,
        n % 16,
        c % c0,
    )


def fractal_z_3d(shape, c0):
    n, c, d, h, w = shape
    c1 = ceil(c, c0)
    return (d * c1 * h * w, ceil(n, 16), 16, c0), lambda n, c, k, i, j: (
        ((k * c1 + c // c0) * h + i) * w + j,
        n // 16,
        n % 16,
        c % c0,
    )


def fractal_z_matrix(shape, c0):
    k, n = shape
    return (ceil(k, c0), ceil(n, 16), 16, c0), lambda k, n: (k // c0, n // 16, n % 16, k % c0)


def fractal_nz(shape, c0):
    *batch, m, n = shape
    return (*batch, ceil(n, c0), ceil(m, 16), 16, c0), lambda *index: (
        *index[:-2],
        index[-1] // c0,
        index[-2] // 16,
        index[-2] % 16,
        index[-1] % c0,
    )


# private format -> public format -> (formula, the axes it takes by their place in the public one)
BY_AXES = {
    "NC1HWC0": (five_d, "NCHW", ("NCHW", "NHWC", "HWCN")),
    "NC1HWC0_C04": (five_d, "NCHW", ("NCHW", "NHWC", "HWCN")),
    "FRACTAL_Z": (fractal_z, "NCHW", ("NCHW", "NHWC", "HWCN")),
    "NDC1HWC0": (six_d, "NCDHW", ("NCDHW", "NDHWC")),
    "FRACTAL_Z_3D": (fractal_z_3d, "NCDHW", ("NCDHW", "NDHWC")),
}
BY_PLACE = {("FRACTAL_Z", "ND"): (fractal_z_matrix, (2,))} | {
    ("FRACTAL_NZ", name): (fractal_nz, ranks)
    for name, ranks in {"ND": (2, 3, 4, 6), "NCL": (3,), "NCHW": (4,), "NCDHW": (5,)}.items()
}

CASES = [
    *((public, private) for private, (_, _, made) in BY_AXES.items() for public in made),
    *((public, private) for private, public in BY_PLACE),
]


def ranks(public, private):
    return BY_PLACE[private, public][1] if (private, public) in BY_PLACE else (len(public),)


def stored(public, private, shape, c0):
    """Stored shape and the map of public indices to places."""
    if (private, public) in BY_PLACE:
        size, formula = BY_PLACE[private, public][0](shape, c0)
        return size, {i: formula(*i) for i in itertools.product(*map(range, shape))}
    make, axes, _ = BY_AXES[private]
    places = [public.index(axis) for axis in axes]
    size, formula = make([shape[p] for p in places], c0)
    return size, {
        i: formula(*(i[p] for p in places)) for i in itertools.product(*map(range, shape))
    }


def store(public, private, shape, c0, values):
    """Flat stored values of a flat list of public ones; padding is 0."""
    size, places = stored(public, private, shape, c0)
    out = [0] * math.prod(size)
    for value, index in zip(values, places, strict=True):
        flat = 0
        for i, n in zip(places[index], size, strict=True):
            assert 0 <= i < n
            flat = flat * n + i
        out[flat] = value
    return size, out
