"""Presets: every row, the lists against the vendors', and the format of operations by hand."""

import functools
import re

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
import pytest
import yaml

import npusim as npu
from npusim import _errors as errors
from npusim.inject import Policy, preset, presets, report, simulate
from npusim.inject.vendors import find_preset, listed
from npusim.modes import Target
from tests.flax.models import CNN, IMAGES, MLP, ROWS, TOKENS, Decoder
from tests.golden.data import rows as golden_rows
from tests.helpers import same_arrays

NAMES = [row.name for row in presets() if row.available]
LATER = [row.name for row in presets() if not row.available]


def test_the_rows_are_the_ones_asked_for_and_have_sources():
    assert npu.presets is presets
    assert npu.preset is preset
    spellings = [name for row in presets() for name in (row.name, *row.aliases)]
    assert len(spellings) == len(set(spellings))
    levels = [f"mindspore_{level}_{low}" for level in ("o1", "o2", "o3", "auto") for low in LOWS]
    modes = """
        force_fp16 force_fp32 cube_fp16in_fp32out allow_fp32_to_fp16 must_keep_origin_dtype
        allow_mix_precision allow_mix_precision_fp16 allow_mix_precision_bf16 allow_fp32_to_bf16
        fp16 origin mixed_float16 mixed_bfloat16 mixed_hif8 cube_hif8
    """
    recipes = """
        mindspeed_tensorwise_e4m3 mindspeed_tensorwise_hybrid mindspeed_tensorwise_hif8
        torch_npu_autocast_fp16 torch_npu_autocast_bf16 hf32_default mindspore_o0
    """
    for name in (*levels, *modes.split(), *recipes.split()):
        assert find_preset(name).available, name
    for name in ("mxfp8", "mxfp8-32x32", "w4a16-mxfp4", "delayed_hif8_pertensor"):
        assert name in spellings
        assert not find_preset(name).available
    for row in presets():
        assert row.sources
        assert row.grade in ("documented", "implementation", "assumed")
        assert row.recipe if row.available else row.missing


LOWS = ("fp16", "bf16")


@pytest.mark.parametrize("name", NAMES)
def test_plain_form_gives_the_same_policy_back(name):
    chip = find_preset(name).chips[-1]
    for target in (None, Target(chip, "numerics")):
        policy = preset(name, target)
        text = yaml.safe_dump(policy.to_dict())
        assert Policy.from_dict(yaml.safe_load(text)).hash() == policy.hash()
    assert all(rule.reason for rule in policy.rules)
    assert any(not rule.optional for rule in policy.rules) or name.startswith("hf32")


def test_the_lists_are_the_vendors():
    golden: dict[tuple[str, str], set[str]] = {}
    for row in golden_rows("vendor_lists"):
        golden.setdefault((row["list"], row["part"]), set()).update(row["operators"].split())
    ours: dict[tuple[str, str], set[str]] = {}
    for entry in listed():
        part = {"low_scope": "low", "low_norm": "low"}.get(entry.part, entry.part)
        if entry.grade != "assumed":
            ours.setdefault((entry.list, part), set()).add(entry.operator)
    assert {key: ours[key] for key in golden} == golden
    assert {key[0] for key in ours} - {key[0] for key in golden} == {"composite", "bias", "linear"}
    for entry in listed():
        assert entry.key in ("op", "function", "-")
        assert bool(entry.match) is (entry.key != "-")
        re.compile(entry.match)


def test_refusals():
    assert "cube_hf32" not in [name for row in presets() for name in (row.name, *row.aliases)]
    with pytest.raises(errors.UnknownNameError, match="preset 'cube_hf32'"):
        preset("cube_hf32")
    with pytest.raises(errors.UnknownNameError, match="Did you mean 'mindspore_o2'"):
        preset("mindspore-o2")
    with pytest.raises(errors.PolicyError, match=r"not available yet: a CastSpec scales a whole"):
        preset("mxfp8")
    with pytest.raises(errors.PolicyError, match=r"need state that casts do not carry"):
        preset("mindspeed_delayed_e4m3")
    with pytest.raises(errors.UnsupportedCastError, match=r"'mixed_hif8' for A2A3. Allowed: 950PR"):
        preset("mixed_hif8", Target("A2A3", "numerics"))
    with pytest.raises(errors.PolicyError, match=r"target '950PR'. Allowed: npusim.Target or None"):
        preset("mixed_hif8", "950PR")
    assert preset("mixed_hif8", Target("950PR", "ascendc")).target == Target("950PR", "ascendc")
    # aclnn's casts have neither mode nor saturation; HF32 is no cast of an entry point.
    (first, *_) = preset("force_fp32", Target("A2A3", "aclnn")).rules
    assert first.input.mode is None
    assert first.input.satmode is None
    with pytest.raises(errors.UnsupportedCastError, match="fp32 -> hf32"):
        preset("hf32_default", Target("A2A3", "pypto"))


def cross_entropy(logits, labels):
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


@functools.cache
def models(name):
    """Loss, how its variables are made, and its data."""
    key = jax.random.key(0)
    if name == "decoder":
        net = Decoder(1)
        loss = lambda v, x: cross_entropy(net.apply(v, x), x)  # noqa: E731
        return loss, lambda: net.init(key, TOKENS), TOKENS
    if name == "mlp":
        net = MLP()
        loss = lambda v, x: jnp.mean(net.apply(v, x) ** 2)  # noqa: E731
        return loss, lambda: net.init(key, ROWS), ROWS
    net = CNN()
    labels = jnp.array([0, 1, 2, 0])

    def loss(variables, x):
        kept = {"mutable": ["batch_stats"], "rngs": {"dropout": jax.random.key(1)}}
        return cross_entropy(net.apply(variables, x, True, **kept)[0], labels)

    return loss, lambda: net.init({"params": key, "dropout": key}, IMAGES, True), IMAGES


@functools.cache
def shapes(name):
    """Loss and the shapes of its arguments, parameters first."""
    loss, init, x = models(name)
    return loss, jax.eval_shape(init), jax.ShapeDtypeStruct(x.shape, x.dtype)


# Where an operation stands in the models, and which it is; a composite operator by its name.
DECODER = {
    "lookup": ("embed", "gather"),
    "norm 0": ("LayerNorm_0", "LayerNorm"),
    "query": ("attn/query", "dot_general"),
    "bias": ("attn/query", "add"),
    "scores": ("attn", "dot_general"),
    "softmax": ("attn", "softmax"),
    "out": ("attn/out", "dot_general"),
    "residual": ("block_0", "add"),
    "norm 1": ("LayerNorm_1", "LayerNorm"),
    "gelu": ("block_0", "gelu"),
    "logits": ("embed", "dot_general"),
}
IMAGE = {
    "stem": ("stem", "conv_general_dilated"),
    "bias": ("stem", "add"),
    "norm": ("BatchNorm_0", "_normalize"),
    "relu": ("CNN", "relu"),
    "pool": ("CNN", "reduce_window_sum"),
    "body": ("body", "conv_general_dilated"),
    "head": ("head", "dot_general"),
}


def seen(found, places):
    """The format of each place; a composite operator has that of what leaves it, else float32."""
    answer = {}
    for key, (path, op) in places.items():
        forward = [s for s in found.sites if s.direction == "forward"]
        there = [s for s in forward if re.search(rf"(^|/){path}(/{op}|/_normalize)?$", s.path)]
        if op in ("softmax", "gelu", "relu", "LayerNorm", "_normalize"):
            names = ("_normalize", op) if op == "LayerNorm" else (op,)
            leaves = [
                s
                for s in there
                if s.op == "boundary" and not s.roles and any(n in s.why for n in names)
            ]
            plain = [s for s in there if s.op == "max" and s.path == "CNN" and s.rule is not None]
            sites = leaves or (plain if op == "relu" else [])
            answer[key] = sites[0].formats if sites else "fp32"
        else:
            answer[key] = next(s for s in there if s.op == op).formats
    return answer


def table(text, places):
    cells = [cell.strip().replace(">", " -> ") for cell in text.split("|")]
    return dict(zip(places, cells, strict=True))


# lookup | norm 0 | query | bias | scores | softmax | out | residual | norm 1 | gelu | logits
LANGUAGE = {
    "mindspore_o0": "fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32",
    "mindspore_o1_*": "fp32|fp32|L|L|L|fp32|L|fp32|fp32|fp32|L",
    "mindspore_o2_*": "L|L|L|L|L|L|L|L|L|L|L",
    "mindspore_o3_*": "L|L|L|L|L|L|L|L|L|L|L",
    # The table is a float32 parameter, and so is what the first residual addition reads.
    "mindspore_auto_*": "fp32|fp32|L|L|L|fp32|L|fp32|fp32|L|L",
    # Attention is one operator: float32 inside.
    "torch_npu_autocast_*": "fp32|fp32|L|L|fp32|fp32|L|fp32|fp32|L|L",
    "cann_force_fp16": "L|L|L|L|L|L|L|L|L|L|L",
    "cann_force_fp32": "fp32|fp32|L>fp32|fp32|L>fp32|fp32|L>fp32|fp32|fp32|fp32|L>fp32",
    "cann_allow_fp32_to_fp16": "fp32|fp32|L|fp32|L|fp32|L|fp32|fp32|fp32|L",
    "cann_allow_fp32_to_bf16": "fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32",
    "cann_must_keep_origin_dtype": "fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32",
    # The first norm follows the lookup, which follows the table; the second a white addition.
    "cann_allow_mix_precision_*": "fp32|fp32|L|L|L|L|L|L|L|L|L",
    "cann_mixed_hif8": "fp32|fp32|hif8|fp16|hif8|fp16|hif8|fp16|fp16|fp16|hif8",
    "cann_cube_hif8": "fp32|fp32|hif8|fp32|hif8|fp32|hif8|fp32|fp32|fp32|hif8",
    "hf32_default": "fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32",
    "hf32_matmul_on": "fp32|fp32|hf32>fp32|fp32|hf32>fp32|fp32|hf32>fp32|fp32|fp32|fp32|hf32>fp32",
    "hf32_off": "fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32|fp32",
    # Linear layers only: not attention, not the tied embedding.
    "mindspeed_tensorwise_e4m3": "B|B|fp8_e4m3>B|B|B|B|fp8_e4m3>B|B|B|B|B",
    "mindspeed_tensorwise_hybrid": "B|B|fp8_e4m3>B|B|B|B|fp8_e4m3>B|B|B|B|B",
    "mindspeed_tensorwise_hif8": "B|B|hif8>B|B|B|B|hif8>B|B|B|B|B",
}
# stem | bias | norm | relu | pool | body | head
VISION = {
    "mindspore_o0": "fp32|fp32|fp32|fp32|fp32|fp32|fp32",
    "mindspore_o1_*": "L|L|fp32|L|fp32|L|L",
    "mindspore_o2_*": "L|L|L|L|L|L|L",
    "mindspore_o3_*": "L|L|L|L|L|L|L",
    "mindspore_auto_*": "L|L|fp32|fp32|fp32|L|L",
    # Pooling is no sum of the list, so it has its input's type.
    "torch_npu_autocast_*": "L|L|L|L|L|L|L",
    "cann_force_fp16": "L|L|L|L|L|L|L",
    "cann_force_fp32": "L>fp32|fp32|fp32|fp32|fp32|L>fp32|L>fp32",
    "cann_allow_fp32_to_fp16": "L|fp32|fp32|fp32|fp32|L|L",
    "cann_allow_fp32_to_bf16": "fp32|fp32|fp32|fp32|fp32|fp32|fp32",
    "cann_must_keep_origin_dtype": "fp32|fp32|fp32|fp32|fp32|fp32|fp32",
    "cann_allow_mix_precision_*": "L|L|L|L|L|L|L",
    "cann_mixed_hif8": "hif8|fp16|fp16|fp16|fp16|hif8|hif8",
    "cann_cube_hif8": "hif8|fp32|fp32|fp32|fp32|hif8|hif8",
    "hf32_default": "hf32>fp32|fp32|fp32|fp32|fp32|hf32>fp32|fp32",
    "hf32_matmul_on": "hf32>fp32|fp32|fp32|fp32|fp32|hf32>fp32|hf32>fp32",
    "hf32_off": "fp32|fp32|fp32|fp32|fp32|fp32|fp32",
    "mindspeed_tensorwise_e4m3": "B|B|B|B|B|B|fp8_e4m3>B",
    "mindspeed_tensorwise_hybrid": "B|B|B|B|B|B|fp8_e4m3>B",
    "mindspeed_tensorwise_hif8": "B|B|B|B|B|B|hif8>B",
}


def expected(tables, name):
    low = "bf16" if name.endswith("bf16") else "fp16"
    general = name.removesuffix("fp16").removesuffix("bf16") + "*"
    return tables.get(name, tables.get(general)).replace("L", low).replace("B", "bf16")


# The bf16 rows have the rules of the fp16 ones with another format in them.
BY_HAND = [
    pytest.param(n, marks=pytest.mark.slow) if n.endswith("_bf16") and "to_bf16" not in n else n
    for n in NAMES
]


@pytest.mark.parametrize("name", BY_HAND)
def test_formats_of_a_transformer_and_of_a_batchnorm_cnn(name):
    for model, tables, places in (("decoder", LANGUAGE, DECODER), ("cnn", VISION, IMAGE)):
        loss, *args = shapes(model)
        found = report(loss, preset(name), *args)
        assert seen(found, places) == table(expected(tables, name), places), model
        # Nothing that a named module computes is left without a reason.
        inside = [s for s in found.sites if s.path and not name.startswith("hf32")]
        assert all(s.why for s in inside if s.rule is not None)
        assert not found.unused


def test_gradients_have_their_own_formats():
    loss, *args = shapes("decoder")
    step = jax.grad(loss)

    def back(name, path):
        sites = report(step, preset(name), *args).sites
        found = [s for s in sites if s.direction == "backward" and s.path.endswith(path)]
        return {s.formats for s in found if s.op == "dot_general"}

    assert back("mindspeed_tensorwise_hybrid", "attn/query") == {"fp8_e5m2, fp8_e4m3 -> bf16"}
    assert back("mindspeed_tensorwise_hif8", "attn/query") == {"hif8 -> bf16"}
    assert back("force_fp32", "attn/query") == {"fp16 -> fp32"}
    grads = [rule.grad for rule in preset("mindspeed_tensorwise_hif8").rules if rule.grad]
    (linear,) = [spec for spec in grads if spec.dtype is npu.DT_HF8]
    assert (linear.amax_to, linear.scale) == (224, "amax")


def test_reasons_say_what_was_followed():
    loss, *args = shapes("decoder")
    text = str(report(loss, preset("allow_mix_precision"), *args))
    lines = [re.sub(r"  +", " | ", line) for line in text.splitlines()]
    assert lines[1] == "path | op | direction | rule | formats | why"
    place = "Decoder/block_0"
    assert f"{place}/attn/query | dot_general | forward | 6 | fp16 | white list" in lines
    assert (
        f"{place}/LayerNorm_1 | boundary | forward | 3 | fp16 | gray list: LayerNorm: "
        f"follows add at {place} (fp16)"
    ) in lines
    text = str(report(loss, preset("mindspore_o2"), *args))
    assert "black list: LayerNorm" in text


def test_running_statistics_stay_float32():
    norm = nn.BatchNorm(use_running_average=False)
    x = jnp.linspace(-2.1, 3.3, 24).reshape(8, 3).astype(jnp.float16).astype(jnp.float32)
    variables = norm.init(jax.random.key(0), x)

    def run(variables, x):
        with jax.named_scope("net"):
            return norm.apply(variables, 2 * x, mutable=["batch_stats"])

    out, kept = simulate(run, preset("force_fp16"))(variables, x)
    plain, exact = run(variables, x)
    # 2 x is on the grid, so the statistics are those of the plain module; the result is rounded.
    for got, want in zip(jax.tree.leaves(kept), jax.tree.leaves(exact), strict=True):
        same_arrays(got, want, "statistics")
    same_arrays(out, plain.astype(jnp.float16).astype(jnp.float32), "result")


STEPS = [("mindspore_o2", "mlp"), ("mixed_hif8", "mlp")]
ALL_STEPS = [(n, m) for n in NAMES for m in ("mlp", "cnn", "decoder") if (n, m) not in STEPS]


@pytest.mark.parametrize(
    ("name", "model"), [*STEPS, *(pytest.param(*s, marks=pytest.mark.slow) for s in ALL_STEPS)]
)
def test_a_training_step_gives_a_finite_loss(name, model):
    loss, init, x = models(model)
    params = jax.jit(init)()
    step = jax.jit(jax.value_and_grad(loss))
    value, grads = jax.jit(simulate(step, preset(name)))(params, x)
    plain, exact = step(params, x)
    assert abs(value - plain) < 0.1 * abs(plain) + 0.01
    for got, want in zip(jax.tree.leaves(grads), jax.tree.leaves(exact), strict=True):
        assert bool(jnp.isfinite(got).all())
        assert got.shape == want.shape
    if "o0" not in name and "origin" not in name and "hf32" not in name and "to_bf16" not in name:
        assert value != plain


def test_plain_functions_need_a_path_and_are_told_so():
    def f(w, x):
        return jax.nn.softmax(x @ w)

    args = jnp.eye(3), jnp.ones((2, 3))
    with pytest.warns(errors.UnusedRuleWarning, match="reason='white list'"):
        simulate(f, preset("allow_mix_precision"))(*args)
    found = report(f, preset("allow_mix_precision", path=".*"), *args)
    assert [s.formats for s in found.sites if s.op == "dot_general"] == ["fp16"]
