"""Bad input: the class of the error and its whole text."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import npusim as npu

HALF = np.ones(4, np.float16)
FLOAT = np.ones(4, np.float32)
FORMATS = (
    "fp32, fp16, bf16, fp64, hf32, int4, int8, int16, int32, int64, uint8, uint16, uint32, uint64, "
    "bool, complex32, complex64, complex128, fp8_e4m3, fp8_e5m2, fp8_e8m0, hif8, fp4_e2m1, fp4_e1m2"
)
NAMES = "Pass one of these names, a DT_ or ACL_ name, or a NumPy or JAX dtype."
IN_FLOAT32 = (
    "fp32, fp16, bf16, hf32, int4, int8, int16, uint8, uint16, bool, fp8_e4m3, fp8_e5m2, fp8_e8m0, "
    "hif8, fp4_e2m1, fp4_e1m2"
)
X64 = (
    "Allowed: types of at most 32 bits while jax_enable_x64 is off. Set "
    "jax.config.update('jax_enable_x64', True), or convert to a narrower type yourself: JAX would "
    "narrow it without a word."
)
OPERAND = (
    "Allowed: a jax.Array, a NumPy array, an NpuArray or a Python number. Wrap it in jnp.asarray, "
    "or in npusim.array(values, dtype)."
)
NUMBERS = "Allowed: bool, integer, float and complex arrays. Convert it to numbers first."
STATIC = (
    "Mark the argument static in jax.jit, or pass npusim.FormatParams, which may be traced, as the "
    "dtype of npusim.fake_cast."
)
SIZE = (
    "Allowed: rank 1 to 4, not empty, at most 2147483647 elements. Reshape the array, or use "
    "another entry point, e.g. Target(api='numerics')."
)
LABORATORY = "Use Target(api='numerics') to try it all the same."


def lab():
    return npu.Target(api="numerics")


def traced(function, value=1):
    return jax.jit(function)(value)


CASES = {
    "dtype": (
        lambda: npu.cast(HALF, "fp9"),
        npu.UnknownNameError,
        f"Given: data type 'fp9'. Allowed: {FORMATS}. {NAMES}",
    ),
    "dtype, nearly": (
        lambda: npu.cast(HALF, "int9"),
        npu.UnknownNameError,
        f"Given: data type 'int9'. Allowed: {FORMATS}. Did you mean 'int8'? {NAMES}",
    ),
    "dtype without width": (
        lambda: npu.cast(HALF, float),
        npu.UnknownNameError,
        f"Given: data type <class 'float'>. Allowed: {FORMATS}. {NAMES}",
    ),
    "mode": (
        lambda: npu.cast(HALF, "int8", "RIMT"),
        npu.UnknownNameError,
        (
            "Given: cast mode 'RIMT'. Allowed: NONE, RINT, FLOOR, CEIL, ROUND, TRUNC, ODD, HYBRID. "
            "Did you mean 'RINT'? Pass one of these names."
        ),
    ),
    "satmode": (
        lambda: npu.cast(HALF, "int8", satmode="yes"),
        npu.UnknownNameError,
        "Given: saturation mode 'yes'. Allowed: OFF, ON. Pass one of these names.",
    ),
    "soc": (
        lambda: npu.Target("910X"),
        npu.UnknownNameError,
        (
            "Given: SoC '910X'. Allowed: A2A3, A2, A3, 910B, 950PR, 950, 950DT, A5. "
            "Did you mean '910B'? Pass one of these names."
        ),
    ),
    "api": (
        lambda: npu.Target(api="torch"),
        npu.UnknownNameError,
        (
            "Given: entry point (api) 'torch'. Allowed: pypto, ascendc, aclnn, numerics. "
            "Pass one of these names."
        ),
    ),
    "overflow": (
        lambda: npu.Target(overflow="WRAP"),
        npu.UnknownNameError,
        "Given: overflow mode 'WRAP'. Allowed: INF_NAN, SATURATE. Pass one of these names.",
    ),
    "level": (
        lambda: npu.Target(level="tile"),
        npu.UnknownNameError,
        "Given: level 'tile'. Allowed: memory, reg. Pass one of these names.",
    ),
    "target as text": (
        lambda: npu.cast(HALF, "int8", target="950PR"),
        npu.InputError,
        (
            "Given: target='950PR'. Allowed: an npusim.Target. Write target=npusim.Target(soc, "
            "api), "
            "e.g. npusim.Target('A2A3', 'pypto')."
        ),
    ),
    "pair": (
        lambda: npu.cast(HALF, "bf16"),
        npu.UnsupportedCastError,
        (
            "Given: fp16 -> bf16 on 950PR pypto INF_NAN. Allowed: from fp16 to fp32, int32, int16, "
            "int8, uint8, hif8. The pair exists on: 950PR ascendc memory; 950PR ascendc reg; A2A3 "
            f"aclnn INF_NAN; 950PR aclnn INF_NAN. {LABORATORY}"
        ),
    ),
    "pair of another chip": (
        lambda: npu.cast(HALF, "int4"),
        npu.UnsupportedCastError,
        (
            "Given: fp16 -> int4 on 950PR pypto INF_NAN. Allowed: from fp16 to fp32, int32, int16, "
            "int8, uint8, hif8. The pair exists on: A2A3 pypto INF_NAN; A2A3 ascendc; 950PR "
            "ascendc "
            f"memory; 950PR ascendc reg. {LABORATORY}"
        ),
    ),
    "pair of no chip": (
        lambda: npu.cast(FLOAT, "fp8_e8m0"),
        npu.UnsupportedCastError,
        (
            "Given: fp32 -> fp8_e8m0 on 950PR pypto INF_NAN. Allowed: from fp32 to fp32, fp16, "
            "bf16, "
            "int64, int32, int16, fp8_e4m3, fp8_e5m2, hif8. No chip or entry point has the pair. "
            f"{LABORATORY}"
        ),
    ),
    "source without casts": (
        lambda: npu.cast(np.ones(2, np.uint16), "int8"),
        npu.UnsupportedCastError,
        (
            "Given: uint16 -> int8 on 950PR pypto INF_NAN. Allowed: no cast from uint16 at all. "
            "The "
            f"pair exists on: A2A3 aclnn INF_NAN; 950PR aclnn INF_NAN. {LABORATORY}"
        ),
    ),
    "mode of the pair": (
        lambda: npu.cast(FLOAT, "fp8_e4m3", "FLOOR", target=npu.Target(api="ascendc")),
        npu.UnsupportedCastError,
        (
            "Given: mode FLOOR for fp32 -> fp8_e4m3 on 950PR ascendc memory. Allowed: RINT. Pass "
            "one "
            "of these modes, or use Target(api='numerics') to try any mode."
        ),
    ),
    "mode for aclnn": (
        lambda: npu.cast(FLOAT, "int8", "RINT", target=npu.Target(api="aclnn")),
        npu.UnsupportedCastError,
        (
            "Given: mode=CAST_RINT for aclnnCast. Allowed: no mode and no satmode: the operator "
            "has "
            "neither. Leave mode out; target.overflow sets the float overflow mode."
        ),
    ),
    "odd last axis": (
        lambda: npu.cast(jnp.ones((2, 3), jnp.bfloat16), "fp4_e2m1", packed=True),
        npu.InputError,
        (
            "Given: shape (2, 3) to pack two to a byte (axis 1 has length 3). Allowed: an even "
            "length "
            "of the last axis. Pad the last axis by one element (jnp.pad), or pass packed=False."
        ),
    ),
    "packing bytes": (
        lambda: npu.cast(HALF, "int8", packed=True),
        npu.InputError,
        (
            "Given: packed=True for int8. Allowed: int4, fp4_e2m1, fp4_e1m2. Only the 4-bit "
            "formats "
            "pack two elements to a byte; leave packed=False."
        ),
    ),
    "codes of floats": (
        lambda: npu.from_codes(np.ones(2, np.float32), "hif8"),
        npu.InputError,
        (
            "Given: codes of dtype float32 for hif8. Allowed: unsigned or signed integer arrays "
            "holding bit patterns. To encode values, call npusim.array(values, 'hif8')."
        ),
    ),
    "a code too large": (
        lambda: npu.from_codes([256], "hif8"),
        npu.InputError,
        "Given: code 256 for hif8. Allowed: 0 to 255 (8 bits). Give the low 8 bits of each code.",
    ),
    "codes out of range": (
        lambda: npu.from_codes([-1, 16], "fp4_e2m1"),
        npu.InputError,
        (
            "Given: codes from -1 to 16 for fp4_e2m1. Allowed: 0 to 15 (4 bits). Give the low 4 "
            "bits "
            "of each code. For bytes of two codes pass packed=True."
        ),
    ),
    "empty": (
        lambda: npu.cast(np.ones(0, np.float16), "int8"),
        npu.InputError,
        f"Given: shape (0,) for pypto.cast. {SIZE}",
    ),
    "rank 5": (
        lambda: npu.cast(np.ones((1, 1, 1, 1, 2), np.float16), "int8"),
        npu.InputError,
        f"Given: shape (1, 1, 1, 1, 2) for pypto.cast. {SIZE}",
    ),
    "rank 0": (
        lambda: npu.cast(np.float16(1), "int8"),
        npu.InputError,
        f"Given: shape () for pypto.cast. {SIZE}",
    ),
    "64-bit result": (
        lambda: npu.cast(FLOAT, "int64"),
        npu.X64RequiredError,
        f"Given: a result of type int64. {X64}",
    ),
    "64-bit NumPy float": (
        lambda: npu.cast(np.ones(2), "int8", target=lab()),
        npu.X64RequiredError,
        f"Given: an input of type fp64. {X64}",
    ),
    "64-bit NumPy integer": (
        lambda: npu.cast(np.ones(2, np.int64), "int32"),
        npu.X64RequiredError,
        f"Given: an input of type int64. {X64}",
    ),
    "64-bit NumPy complex": (
        lambda: npu.fake_cast(np.ones(2, np.complex128), "fp16"),
        npu.X64RequiredError,
        f"Given: an input of type complex128. {X64}",
    ),
    "64-bit array": (
        lambda: npu.array([1], "uint64"),
        npu.X64RequiredError,
        f"Given: an array of type uint64. {X64}",
    ),
    "64-bit codes": (
        lambda: npu.from_codes([1], "fp64"),
        npu.X64RequiredError,
        f"Given: codes of type fp64. {X64}",
    ),
    "text": (
        lambda: npu.cast(np.array(["a"]), "int8"),
        npu.InputError,
        f"Given: an array of dtype <U1. {NUMBERS}",
    ),
    "objects": (
        lambda: npu.array(np.array([None]), "int8"),
        npu.InputError,
        f"Given: an array of dtype object. {NUMBERS}",
    ),
    "dates": (
        lambda: npu.fake_cast(np.array(["2020-01-01"], "datetime64[D]"), "int8"),
        npu.InputError,
        f"Given: an array of dtype datetime64[D]. {NUMBERS}",
    ),
    "random keys": (
        lambda: npu.cast(jax.random.key(0), "int8"),
        npu.InputError,
        f"Given: an array of dtype key<fry>. {NUMBERS}",
    ),
    "a list": (
        lambda: npu.cast([1.0], "int8"),
        npu.InputError,
        f"Given: an operand of type list. {OPERAND}",
    ),
    "nothing": (
        lambda: npu.fake_cast(None, "int8"),
        npu.InputError,
        f"Given: an operand of type NoneType. {OPERAND}",
    ),
    "traced mode": (
        lambda: traced(lambda mode: npu.cast(HALF, "int8", mode)),
        npu.TracedValueError,
        f"Given: mode as a traced value. Allowed: a static mode. {STATIC}",
    ),
    "traced satmode": (
        lambda: traced(lambda sat: npu.fake_cast(FLOAT, "int8", satmode=sat), True),
        npu.TracedValueError,
        f"Given: satmode as a traced value. Allowed: a static satmode. {STATIC}",
    ),
    "traced dtype": (
        lambda: traced(lambda dtype: npu.cast(HALF, dtype)),
        npu.TracedValueError,
        f"Given: dtype as a traced value. Allowed: a static dtype. {STATIC}",
    ),
    "traced values": (
        lambda: traced(lambda x: npu.array(x, "int8")),
        npu.TracedValueError,
        (
            "Given: a traced value. Allowed: concrete numbers. Inside jit, call npusim.cast(x, "
            "'int8', "
            "'RINT', 'ON', target=npusim.Target(api='numerics'))."
        ),
    ),
    "traced format for storage": (
        lambda: npu.cast(FLOAT, npu.FormatParams.of("fp8_e4m3")),
        npu.TracedValueError,
        (
            "Given: FormatParams as the destination of cast. Allowed: a data type or its name. The "
            "storage form needs a static type; npusim.fake_cast takes FormatParams."
        ),
    ),
    **{
        f"carrier of {name}": (
            lambda name=name: npu.fake_cast(FLOAT, name),
            npu.CarrierError,
            (
                f"Given: {name} in a float32 carrier. Allowed: {IN_FLOAT32}. "
                f"Use npusim.cast(x, '{name}'), which returns the type itself."
            ),
        )
        for name in ("int32", "uint32", "int64", "fp64")
    },
    "no traced form": (
        lambda: npu.FormatParams.of("int32"),
        npu.InputError,
        (
            "Given: int32 as a traced format. Allowed: fp32, fp16, bf16, hf32, int4, int8, int16, "
            "uint8, uint16, fp8_e4m3, fp8_e5m2, fp8_e8m0, hif8, fp4_e2m1, fp4_e1m2. Pass one of "
            "these, "
            "or use the static form."
        ),
    ),
    "ste": (
        lambda: npu.fake_cast(FLOAT, "int8", ste="straight"),
        npu.UnknownNameError,
        "Given: ste='straight'. Allowed: identity, clip, zero. Pass one of these names.",
    ),
    "deqscale": (
        lambda: npu.cast(HALF, "int8", deqscale=2.0),
        npu.InputError,
        (
            "Given: deqscale for fp16 -> int8 on 950PR pypto INF_NAN. Allowed: a deqscale for "
            "int32 -> "
            "fp16 under pypto and ascendc only. Leave deqscale out, or multiply by the scale "
            "yourself."
        ),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_text(case):
    call, kind, text = CASES[case]
    with pytest.raises(npu.NpusimError) as caught:
        call()
    assert type(caught.value) is kind
    assert str(caught.value) == text


def test_errors_are_also_the_usual_kind_of_error():
    assert issubclass(npu.UnknownNameError, ValueError)
    assert issubclass(npu.InputError, ValueError)
    assert issubclass(npu.X64RequiredError, TypeError)


def test_what_a_fallback_says():
    with pytest.warns(npu.CastFallbackWarning) as caught:
        npu.cast(FLOAT, "hif8", "RINT")
    assert [str(w.message) for w in caught] == [
        (
            "fp32 -> hif8 on 950PR pypto INF_NAN does not take RINT: ROUND runs instead "
            "(pypto.cast page)."
        )
    ]
    assert caught[0].filename == __file__
