"""Running, resuming, counting compilations; with a task of two matmuls."""

import copy
import json
import math

import jax
import numpy as np
import pytest

from npusim._errors import ConfigError
from npusim.reporting.records import read_records
from npusim.sweep.config import parse_config
from npusim.sweep.plan import plan
from npusim.sweep.runner import run_sweep, stack_batches, thin, versions
from npusim.sweep.watch import Watcher
from tests.sweep.tiny import Tiny, config


class Log(Watcher):
    def __init__(self, stop_after=None):
        self.started, self.notes, self.trials, self.compilations = None, [], [], 0
        self.stop_after = stop_after

    def start(self, total, done, programs):
        self.started = (total, done, programs)

    def note(self, text):
        self.notes.append(text)

    def compiled(self, seconds):
        self.compilations += 1

    def advance(self, trials, what):
        self.trials.append((trials, what))
        if self.stop_after == len(self.trials):
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    parsed, log, events = parse_config(config()), Log(), []

    def listen(name, _seconds, **_):
        events.append(name)

    jax.monitoring.register_event_duration_secs_listener(listen)
    records = run_sweep(parsed, folder, watcher=log)
    jax.monitoring.unregister_event_duration_listener(listen)
    return parsed, folder, log, records, events


def test_a_whole_sweep(finished):
    parsed, folder, log, records, _ = finished
    assert log.started == (18, 0, 2)
    assert log.trials[0] == (2, "baseline")
    assert log.trials[1] == (2, "dtype=fp4_e2m1, mode=RINT, satmode=ON")
    assert len(records) == 18
    assert len({r.key for r in records}) == 18
    assert read_records(folder / "tiny") == records
    first = records[0]
    assert (first.kind, first.axes) == (
        "baseline",
        {"dtype": "fp32", "mode": None, "satmode": None},
    )
    assert first.versions == versions()
    assert {"npusim", "jax", "jaxlib", "flax", "optax", "numpy", "python"} <= set(first.versions)
    assert first.config == parsed.to_dict()
    assert first.status == "ok"
    assert set(first.metrics) == {"accuracy", "loss"}
    assert first.curve["step"] == [1, 2, 3, 4, 5, 6]


def test_two_compilations_for_all_formats_modes_and_saturations(finished):
    _, _, log, records, events = finished
    assert log.compilations == 2
    assert records[-1].compilations == 2
    assert {r.program for r in records} == {1, 2}
    compiled = [name for name in events if "backend_compile" in name]
    # Counted by JAX as well: nothing else was compiled on the way.
    assert len(compiled) == 2


def test_trials_differ_where_they_should(finished):
    *_, records, _ = finished
    losses = {(r.kind, *r.axes.values(), r.seed): r.metrics["loss"] for r in records}
    assert (
        losses["trial", "fp4_e2m1", "RINT", "ON", 0]
        != losses["trial", "fp4_e2m1", "TRUNC", "ON", 0]
    )
    assert losses["trial", "int8", "RINT", "ON", 0] != losses["trial", "fp4_e2m1", "RINT", "ON", 0]
    # 4-bit floats always clamp, so saturation must not matter to them.
    assert (
        losses["trial", "fp4_e2m1", "TRUNC", "ON", 1]
        == losses["trial", "fp4_e2m1", "TRUNC", "OFF", 1]
    )
    hashes = {r.policy_hash for r in records}
    assert len(hashes) == 9


def test_the_baseline_is_the_plain_training_run(finished):
    *_, records, _ = finished
    task = Tiny()
    init_key, _ = jax.random.split(jax.random.key(1))
    params = task.init(init_key)
    grad = jax.jit(jax.grad(task.loss))
    for batch in task.batches("train", 1):
        params = jax.tree.map(lambda p, g: p - 0.5 * g, params, grad(params, batch, None))
    expected = task.metrics(params, "test")["loss"]
    baseline = next(r for r in records if r.kind == "baseline" and r.seed == 1)
    assert baseline.metrics["loss"] == pytest.approx(float(expected), rel=1e-5)


def test_a_traced_cell_gives_what_its_own_static_program_gives(finished):
    *_, records, _ = finished
    parsed = parse_config(config())
    cell = next(c for c in plan(parsed) if c.axes["mode"] == "TRUNC" and c.kind == "trial")
    assert cell.policy is not None
    from npusim.inject import simulate

    task = Tiny()
    init_key, _ = jax.random.split(jax.random.key(0))
    params = task.init(init_key)
    grad = jax.jit(simulate(jax.grad(task.loss), cell.policy, params=(0,)))
    for batch in task.batches("train", 0):
        params = jax.tree.map(
            lambda p, g: p - 0.5 * g, params, grad(params, batch, jax.random.key(0))
        )
    measure = simulate(lambda p: task.metrics(p, "test"), cell.policy, params=(0,))
    expected = float(measure(params)["loss"])
    found = next(r for r in records if r.axes == cell.axes and r.seed == 0)
    assert found.metrics["loss"] == pytest.approx(expected, rel=1e-4)


def test_a_finished_sweep_runs_nothing(finished):
    parsed, folder, _, records, _ = finished
    log = Log()
    assert run_sweep(parsed, folder, watcher=log) == records
    assert log.started == (18, 18, 0)
    assert log.trials == []
    assert log.compilations == 0


@pytest.mark.slow  # through the command line, by signals, in test_command_line.py
def test_an_interrupted_sweep_goes_on(tmp_path):
    parsed = parse_config(config(seeds=[0], baseline=None))
    with pytest.raises(KeyboardInterrupt):
        run_sweep(parsed, tmp_path, watcher=Log(stop_after=3))
    kept = read_records(tmp_path / "tiny")
    assert len(kept) == 3
    log = Log()
    records = run_sweep(parsed, tmp_path, watcher=log)
    assert log.started == (8, 3, 1)
    assert records[:3] == kept
    assert len({r.key for r in records}) == len(records) == 8


def test_only_the_missing_seeds_are_added(tmp_path, finished):
    parsed, folder, _, records, _ = finished
    target = tmp_path / "tiny" / "results.jsonl"
    target.parent.mkdir()
    lines = (folder / "tiny" / "results.jsonl").read_text().splitlines(keepends=True)
    target.write_text("".join(lines[:-1]))
    log = Log()
    again = run_sweep(parsed, tmp_path, watcher=log)
    assert log.trials == [(1, "dtype=int8, mode=TRUNC, satmode=OFF")]
    assert again[-1].metrics == records[-1].metrics


def test_other_versions_are_said(tmp_path, finished):
    parsed, folder, *_ = finished
    target = tmp_path / "tiny" / "results.jsonl"
    target.parent.mkdir()
    old = json.loads((folder / "tiny" / "results.jsonl").read_text().splitlines()[0])
    old["versions"]["jax"] = "0.0.1"
    target.write_text(json.dumps(old) + "\n")
    log = Log(stop_after=1)
    with pytest.raises(KeyboardInterrupt):
        run_sweep(parsed, tmp_path, watcher=log)
    assert log.notes == ["the finished trials were run with other versions; the report lists both"]


def test_a_diverged_run_is_a_result(tmp_path):
    raw = config(
        seeds=[0],
        task_args={"factor": 1e30},
        axes={"dtype": ["int8"], "mode": ["RINT"], "satmode": ["ON"]},
    )
    records = run_sweep(parse_config(raw), tmp_path)
    assert {r.status for r in records} == {"diverged"}
    assert records[0].metrics["loss"] is None
    assert records[0].curve["loss"][-1] is None
    json.loads(records[0].to_json(), parse_constant=pytest.fail)


def test_a_rule_that_hits_nothing_is_an_error_before_training(tmp_path):
    raw = copy.deepcopy(config())
    raw["policy"]["rules"].insert(0, {"path": "haed", "ops": "matmul"})
    log = Log()
    with pytest.raises(ConfigError) as caught:
        run_sweep(parse_config(raw, "my.yaml"), tmp_path, watcher=log)
    text = str(caught.value)
    assert text.startswith("Given: my.yaml, key 'policy.rules': ")
    assert "haed" in text
    assert text.endswith("Correct the rule's path or ops, or remove it.")
    assert log.compilations == 0
    assert log.trials == []


def test_a_rule_for_the_backward_pass_only_is_fine(tmp_path):
    raw = config(
        seeds=[0],
        axes={"dtype": ["int8"]},
        policy={
            "rules": [
                {
                    "path": ".*",
                    "ops": "matmul",
                    "weight": {"dtype": "$dtype"},
                    "direction": "backward",
                }
            ]
        },
    )
    assert len(run_sweep(parse_config(raw), tmp_path)) == 2


def test_a_chip_s_casts_have_programs_of_their_own(tmp_path):
    cast = {"dtype": "$dtype", "mode": "RINT"}
    policy = {
        "target": {"soc": "950", "api": "ascendc"},
        "rules": [{"path": "head", "ops": "matmul", "input": cast}],
    }
    raw = config(seeds=[0], axes={"dtype": ["fp16", "fp8_e4m3"]}, policy=policy)
    log = Log()
    records = run_sweep(parse_config(raw), tmp_path, watcher=log)
    assert log.compilations == 3
    assert [r.target for r in records] == [None, "950PR ascendc memory", "950PR ascendc memory"]


def test_unequal_batches_are_refused():
    class Ragged(Tiny):
        def batches(self, split, seed):
            yield np.zeros((4, 4)), np.zeros(4)
            yield np.zeros((3, 4)), np.zeros(3)

    with pytest.raises(ConfigError, match="Drop an incomplete last batch"):
        stack_batches(Ragged(), (0,))

    class Nothing(Tiny):
        def batches(self, split, seed):
            return []

    with pytest.raises(ConfigError, match="no batches for seed 5"):
        stack_batches(Nothing(), (5,))

    class Shorter(Tiny):
        def batches(self, split, seed):
            return [np.zeros(2)] * (seed + 1)

    with pytest.raises(ConfigError, match=r"batches of seeds \[0, 1\]"):
        stack_batches(Shorter(), (0, 1))


def test_metrics_must_be_scalars(tmp_path, monkeypatch):
    monkeypatch.setattr(Tiny, "metrics", lambda self, params, split: {"loss": np.zeros(3)})
    with pytest.raises(ConfigError, match=r"metrics of Tiny: \{'loss': \(3,\)\}"):
        run_sweep(parse_config(config()), tmp_path)


def test_a_format_without_a_traced_form_gets_a_program_of_its_own():
    raw = config(axes={"dtype": ["hif8"], "mode": ["RINT", "HYBRID"], "satmode": ["ON", "OFF"]})
    programs = [cell.program for cell in plan(parse_config(raw)) if cell.kind == "trial"]
    assert programs[0] == programs[1]
    assert len(set(programs)) == 3


def test_thin_averages_finite_losses():
    curve = thin(np.array([1.0, 3.0, np.nan, 5.0, np.inf, np.nan]), points=3)
    assert curve == {"step": [2, 4, 6], "loss": [2.0, 5.0, None]}
    assert thin(np.array([1.0]))["loss"] == [1.0]
    many = thin(np.arange(1000.0))
    assert len(many["step"]) == 40
    assert many["step"][-1] == 1000
    assert all(math.isfinite(v) for v in many["loss"])
