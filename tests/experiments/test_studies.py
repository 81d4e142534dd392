"""The studies: options, results that survive, verdicts; whole runs in the slow suite."""

import dataclasses
import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

import npusim as npu
from npusim.reporting.summary import summarise

FOLDER = Path(__file__).parents[2] / "experiments"
SCRIPTS = ("mixed_precision_lm", "qat_digits")


@pytest.fixture
def load(monkeypatch):
    """A function that imports a module of the experiments folder."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield importlib.import_module
    for name in (*SCRIPTS, "study"):
        sys.modules.pop(name, None)


@pytest.fixture
def study(load):
    return load("study")


def small(study, **settings):
    axes = {"recipe": ["fp8"], "loss_scale": ["none", "1024"]}
    return study.Study("s", axes, [0, 1], {"recipe": "fp32"}, {"steps": 3} | settings)


def fill(study, results, losses):
    """Finished runs: (recipe, loss scale) to the held-out loss of each seed."""
    for (recipe, scale), values in losses.items():
        kind = "baseline" if recipe == "fp32" else "trial"
        for seed, value in enumerate(values):
            axes = {"recipe": recipe, "loss_scale": scale}
            results.add(
                kind,
                axes,
                seed,
                {"loss": value},
                study.thin([5.0, value]),
                0.1,
                policy_hash="0",
                compilations=1,
            )


@pytest.mark.parametrize("name", SCRIPTS)
def test_help(load, capsys, name):
    module = load(name)
    with pytest.raises(SystemExit) as stop:
        module.main(["--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for option in ("--seeds", "--steps", "--results-dir"):
        assert option in text


def test_thin_keeps_means_of_finite_steps(study):
    assert study.thin([4.0, 2.0, np.nan, 1.0, np.nan, np.inf], points=3) == {
        "step": [2, 4, 6],
        "loss": [3.0, 1.0, None],
    }


def test_what_is_left_out_is_not_waited_for(study, tmp_path):
    whole = small(study)
    part = dataclasses.replace(whole, left_out=[{"recipe": "fp8", "loss_scale": "1024"}])
    assert (whole.planned, part.planned) == (6, 4)
    assert part.combinations == [{"recipe": "fp8", "loss_scale": "none"}]
    assert part.hash != whole.hash
    for given, complete in ((whole, False), (part, True)):
        results = study.Results(given, tmp_path / str(complete))
        fill(study, results, {("fp32", "none"): [2.0, 2.0], ("fp8", "none"): [3.0, 3.0]})
        study.report(results, lambda summary: [])
        page = (results.directory / "report.html").read_text()
        assert ("Not complete" not in page) is complete


def test_results_are_found_again(study, tmp_path):
    results = study.Results(small(study), tmp_path)
    fill(study, results, {("fp8", "none"): [3.0]})
    with results.path.open("ab") as file:
        file.write(b'{"kind": "tri')
    again = study.Results(small(study), tmp_path)
    assert again.has("trial", {"loss_scale": "none", "recipe": "fp8"}, 0)
    assert not again.has("trial", {"loss_scale": "none", "recipe": "fp8"}, 1)
    fill(study, again, {("fp8", "1024"): [2.0]})
    assert len(study.Results(small(study), tmp_path).records) == 2
    with pytest.raises(SystemExit, match="results of other settings"):
        study.Results(small(study, steps=4), tmp_path)


@pytest.mark.parametrize(
    ("bare", "scaled", "text"),
    [
        ([3.3, 3.4], [2.0, 2.0], "reproduced"),
        ([3.3, float("nan")], [2.0, 2.0], "reproduced"),
        ([3.3, 3.4], [2.5, 2.5], "half reproduced"),
        ([2.2, 2.2], [2.0, 2.0], "found again, but weaker"),
        ([2.0, 2.1], [2.0, 2.0], "refuted: the loss scale makes no such difference"),
        ([2.2, 2.2], [2.3, 2.3], "refuted"),
    ],
)
def test_verdict_on_the_earlier_finding(load, study, tmp_path, bare, scaled, text):
    results = study.Results(small(study), tmp_path)
    losses = {("fp32", "none"): [2.0, 1.96], ("fp8", "none"): bare, ("fp8", "1024"): scaled}
    fill(study, results, losses)
    lines = load("mixed_precision_lm").verdict(summarise(results.records))
    assert f"The earlier finding is {text}" in lines[-1]
    study.report(results, load("mixed_precision_lm").verdict)
    page = (results.directory / "report.html").read_text()
    assert lines[-1] in page
    assert lines[-1] in (results.directory / "summary.md").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_no_verdict_before_its_runs(load, study, tmp_path):
    results = study.Results(small(study), tmp_path)
    fill(study, results, {("fp32", "none"): [2.0, 2.0], ("fp8", "none"): [2.0, 2.0]})
    lines = load("mixed_precision_lm").verdict(summarise(results.records))
    assert "no verdict" in lines[0]


def test_recipes_touch_what_they_say(load):
    import jax
    import jax.numpy as jnp

    lm = load("mixed_precision_lm")
    size = lm.Size(16, 1, 2, 8)
    params = jax.eval_shape(lambda: size.model.init(jax.random.key(0), jnp.zeros((1, 8), int)))
    batch = jax.ShapeDtypeStruct((2, 9), jnp.uint8)

    def step(params, batch):
        return jax.value_and_grad(lambda p: lm.cross_entropy(size.model, p, batch))(params)

    from npusim.inject import sites

    for recipe in lm.RECIPES:
        found = sites(step, lm.policy_of(recipe), params, batch)
        products = [s for s in found if s.op == "dot_general"]
        # query, key, value, scores, weighted sum, out, up, down, head; twice each going back.
        assert [s.direction for s in products].count("forward") == 9
        assert [s.direction for s in products].count("backward") == 18
        assert all(s.casts for s in products)
        back = [s for s in products if s.direction == "backward"]
        assert all(sum(where.startswith("grad") for where, _ in s.casts) == 1 for s in back)
        outside = [s for s in found if not s.path.startswith("LM") or "norm" in s.path]
        # Norms compute in float32; O2 hands what they return on in the low type.
        assert not any(s.casts for s in outside if s.op != "boundary")
        rounded = {s.path for s in outside if s.op == "boundary"}
        assert len(rounded) == (3 if recipe in ("fp16_o2", "bf16") else 0)


def test_scales(load):
    lm = load("mixed_precision_lm")
    assert [lm.scale_of(name).initial for name in lm.SCALES] == [1.0, 1024.0, 65536.0]
    assert lm.scale_of("dynamic") == npu.training.LossScale.dynamic("torch_npu", interval=100)


@pytest.mark.slow
def test_language_model_study(load, tmp_path):
    options = "--steps 4 --seeds 0 --width 16 --layers 1 --length 16 --recipes fp16_o2 fp8"
    given = [*options.split(), "--loss-scales", "none", "dynamic", "--results-dir", str(tmp_path)]
    lm = load("mixed_precision_lm")
    assert lm.main(given) == 0
    assert (tmp_path / "mixed_precision_lm" / "report.html").exists()
    lines = (tmp_path / "mixed_precision_lm" / "results.jsonl").read_text().splitlines()
    assert len(lines) == 5
    # Again: nothing is run.
    assert lm.main(given) == 0
    again = (tmp_path / "mixed_precision_lm" / "results.jsonl").read_text().splitlines()
    assert again == lines


@pytest.mark.slow
def test_quantization_study(load, tmp_path):
    options = "--steps 30 --tune 10 --seeds 0 1 --formats int8 fp4_e2m1 --modes RINT TRUNC"
    qat = load("qat_digits")
    assert qat.main([*options.split(), "--results-dir", str(tmp_path)]) == 0
    for model in ("mlp", "cnn"):
        folder = tmp_path / f"qat_digits_{model}"
        assert (folder / "report.html").exists()
        # Two seeds of: the baseline, and two formats, two modes, three methods.
        assert len((folder / "results.jsonl").read_text().splitlines()) == 2 * (1 + 12)
