"""The report: every site, what is left out, and its three forms."""

import csv
import io
import warnings
from html.parser import HTMLParser

import jax
import jax.numpy as jnp
import pytest

import npusim as npu
from npusim import _errors as errors
from npusim.inject import CastSpec, Policy, Rule, report, sites
from tests.inject.programs import scanned

HUGE = jax.ShapeDtypeStruct((3, 1 << 20, 1 << 20), jnp.bfloat16)
ROWS = jax.ShapeDtypeStruct((4, 1 << 20), jnp.bfloat16)
POLICY = Policy(
    [
        Rule("head"),
        Rule("layer", input=CastSpec("e4m3"), weight="e4m3", grad="e5m2"),
        Rule(ops="exp", output="fp16"),
    ]
)


def step(w, x):
    def loss(w):
        with jax.named_scope("head"):
            scale = jnp.sum(x @ w[0])
        return scanned(w, x) + scale

    return jax.grad(loss)(w)


@pytest.fixture(scope="module")
def found():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return npu.report(step, POLICY, HUGE, ROWS)


def test_every_site_from_shapes_alone(found):
    assert npu.report is report
    rows = [row for row in found.rows() if row["kind"] == "matmul"]
    assert [(r["path"], r["direction"], r["rule"], r["trips"]) for r in rows] == [
        ("head", "forward", 1, 1),
        ("net/layer", "forward", 2, 3),
        ("net/layer", "backward", 2, 3),
        ("net/layer", "backward", 2, 3),
        ("head", "backward", 1, 1),
    ]
    assert rows[1]["casts"] == "input 0: fp8_e4m3, weight 1: fp8_e4m3, grad: fp8_e5m2"
    assert rows[1]["operands"] == "input bfloat16[4,1048576], weight bfloat16[1048576,1048576]"
    assert rows[1]["results"] == "bfloat16[4,1048576]"
    assert (rows[1]["computes"], rows[0]["computes"]) == ("float32", "")
    assert "test_report.py" in rows[0]["source"] or "programs.py" in rows[0]["source"]
    # What sites lists is a part of it.
    listed = sites(step, POLICY, HUGE, ROWS)
    assert [s for s in found.sites if s.rule is not None or s.kind == "matmul"] == listed


def test_what_the_policy_leaves_out(found):
    assert {site.op for site in found.unmatched} >= {"tanh", "reduce_sum", "add_any"}
    assert found.unused == ((3, "Rule(ops='exp', output=CastSpec(fp16))"),)
    assert "broadcast_in_dim" in dict(found.others)
    lines = str(found).splitlines()
    assert lines[0] == (
        f"{len(found.sites)} sites: 3 with casts, 2 matched without a cast, "
        f"{len(found.unmatched)} matched by no rule"
    )
    assert lines[1].split() == ["path", "op", "direction", "rule", "casts", "operands", "results"]
    assert lines[-1] == "unused: rule 3, Rule(ops='exp', output=CastSpec(fp16))"
    assert [line.split(":")[0] for line in lines[-3:]] == ["no rule", "of no op kind", "unused"]


def test_opaque_kernels_are_in_it_and_nothing_is_warned_of():
    def f(x):
        with jax.named_scope("host"):
            return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((2,), jnp.float32), x)

    shape = jax.ShapeDtypeStruct((2,), jnp.float32)
    found = report(f, Policy([Rule(input="bf16")]), shape)
    assert found.opaque == (("pure_callback", "host"),)
    assert str(found).splitlines()[-1] == "opaque: pure_callback at host"
    assert str(found).startswith("0 sites: 0 with casts")


def test_csv_and_html(found):
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    sites = [row for row in rows if row["kind"] not in ("none", "opaque", "unused rule")]
    assert [row["casts"] for row in sites] == [row["casts"] for row in found.rows()]
    left = rows[len(sites) :]
    assert {"op": "broadcast_in_dim", "kind": "none"}.items() <= left[0].items()
    assert left[-1] == dict.fromkeys(left[-1], "") | {
        "kind": "unused rule",
        "rule": "3",
        "casts": "Rule(ops='exp', output=CastSpec(fp16))",
    }

    class Cells(HTMLParser):
        seen = 0

        def handle_starttag(self, tag, attrs):
            self.seen += tag == "tr"
            assert tag not in ("script", "link", "img")

    page = Cells()
    page.feed(found.to_html())
    assert page.seen == len(sites) + 1
    text = found.to_html()
    assert "<li>unused: rule 3, Rule(ops=&#x27;exp&#x27;, output=CastSpec(fp16))</li>" in text
    counts = [text.count(f'<tr class="{name}">') for name in ("on", "kept", "off")]
    assert counts == [3, 2, len(found.unmatched)]
    assert "&lt;" in report(lambda x: jnp.exp(x), Policy([Rule("<b>", "exp")]), ROWS).to_html()


def test_a_linear_solve_is_opaque_in_every_form():
    def solve(a, b):
        with jax.named_scope("solver"):
            return jnp.linalg.solve(a, b)

    a = jax.ShapeDtypeStruct((3, 3), jnp.float32)
    found = report(solve, Policy([Rule(input="bf16")]), a, jax.ShapeDtypeStruct((3,), jnp.float32))
    assert found.opaque == (("custom_linear_solve", "solver"),)
    rows = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert [(row["path"], row["op"]) for row in rows if row["kind"] == "opaque"] == [
        ("solver", "custom_linear_solve")
    ]
    assert "<li>opaque: custom_linear_solve at solver</li>" in found.to_html()
    with (
        pytest.warns(errors.OpaqueKernelWarning, match="custom_linear_solve at solver"),
        pytest.warns(errors.UnusedRuleWarning),
    ):
        npu.simulate(solve, Policy([Rule(input="bf16")]))(jnp.eye(3), jnp.ones(3))


def test_refusals_are_those_of_simulate():
    with pytest.raises(errors.PolicyError, match="Pass the function, not its result"):
        report(3, POLICY)


def test_complex_numbers_are_listed_and_not_cast():
    def f(w, x):
        z = jnp.fft.fft(x) @ (w + 1j * w)
        return jnp.sum(jnp.abs(z * jnp.exp(z)))

    shape = jax.ShapeDtypeStruct((4, 4), jnp.float32)
    every = CastSpec("bf16")
    policy = Policy([Rule(ops="all", input=every, weight=every, output=every)])
    found = report(f, policy, shape, shape)
    ops = [(site.op, len(site.casts)) for site in found.sites if "complex" in site.dtypes[0]]
    # The magnitude is real: its result is cast.
    want = [("mul", 0), ("add", 0), ("dot_general", 0), ("exp", 0), ("mul", 0), ("abs", 1)]
    assert sorted(ops) == sorted(want)
    assert sorted(s.op for s in found.complex) == sorted(op for op, casts in want if not casts)
    assert "complex, never cast: 1 add, 1 dot_general, 1 exp, 2 mul" in str(found).splitlines()
    assert found.unmatched == ()


def test_a_rule_whose_casts_meet_complex_numbers_alone_is_unused():
    def f(x):
        return jnp.abs(jnp.fft.fft(x) @ jnp.fft.fft(x))

    shape = jax.ShapeDtypeStruct((4, 4), jnp.float32)
    assert [n for n, _ in report(f, Policy([Rule(input="bf16")]), shape).unused] == [1]
    assert report(f, Policy([Rule()]), shape).unused == ()  # it protects, as it says
