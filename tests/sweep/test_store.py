"""No finished trial is lost, and nothing foreign is mixed in."""

import json

import pytest

from npusim._errors import ConfigError
from npusim.reporting.records import Record, read_records
from npusim.sweep.config import parse_config
from npusim.sweep.store import ResultStore, differences
from tests.sweep.tiny import config


def record(parsed, seed, **changes):
    fields = {
        "kind": "trial",
        "axes": {"dtype": "int8", "mode": "RINT", "satmode": "ON"},
        "seed": seed,
        "status": "ok",
        "metrics": {"accuracy": 0.5, "loss": 1.0},
        "curve": {"step": [1], "loss": [1.0]},
        "seconds": 0.1,
        "program": 1,
        "compilations": 1,
        "policy_hash": "0",
        "target": None,
        "config": parsed.to_dict(),
        "config_hash": parsed.hash,
        "versions": {"npusim": "0"},
        "finished": "2024-01-01T00:00:00+00:00",
    }
    return Record(**(fields | changes))


@pytest.fixture
def parsed():
    return parse_config(config(), "my.yaml")


def test_what_is_appended_is_found_again(tmp_path, parsed):
    with ResultStore(tmp_path / "s", parsed) as store:
        store.append([record(parsed, 0)])
        # Before the store is closed: a process that dies now has lost nothing.
        assert len(read_records(tmp_path / "s")) == 1
        store.append([record(parsed, 1)])
    with ResultStore(tmp_path / "s", parsed) as store:
        assert store.records == [record(parsed, 0), record(parsed, 1)]
        assert store.notices == []
        assert record(parsed, 1).key in store.done()


@pytest.mark.parametrize("cut", [1, 2, 40])
def test_a_torn_last_line_is_dropped_and_said(tmp_path, parsed, cut):
    with ResultStore(tmp_path, parsed) as store:
        store.append([record(parsed, 0), record(parsed, 1)])
    path = tmp_path / "results.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    with ResultStore(tmp_path, parsed) as store:
        assert [r.seed for r in store.records] == [0]
        assert store.notices == [
            f"dropped a line of {path} that had been cut short; its trial runs again"
        ]
        store.append([record(parsed, 1)])
    assert [r.seed for r in read_records(tmp_path)] == [0, 1]


def test_damage_elsewhere_is_an_error(tmp_path, parsed):
    with ResultStore(tmp_path, parsed) as store:
        store.append([record(parsed, 0), record(parsed, 1)])
    path = tmp_path / "results.jsonl"
    path.write_text("{}\n" + path.read_text())
    with pytest.raises(ConfigError) as caught:
        ResultStore(tmp_path, parsed)
    assert str(caught.value) == (
        f"Given: {path}, line 1: not the fields of a trial. Allowed: one finished trial a line, as "
        "`npusim sweep` writes it. Remove the line, or start over with `npusim sweep --fresh`."
    )


def test_a_changed_configuration_is_refused_with_what_changed(tmp_path, parsed):
    with ResultStore(tmp_path, parsed) as store:
        store.append([record(parsed, 0)])
    other = parse_config(config(seeds=[0, 1, 2], task_args={"steps": 9}), "my.yaml")
    with pytest.raises(ConfigError) as caught:
        ResultStore(tmp_path, other)
    assert str(caught.value) == (
        f"Given: my.yaml, whose results in {tmp_path} come from another configuration (seeds: "
        "[0, 1] -> [0, 1, 2]; task_args.steps: added as 9). Allowed: the configuration those "
        "results come from. Undo the change, or give the sweep another name, or start over with "
        "--fresh (the old results are kept under another name)."
    )


def test_fresh_keeps_the_old_results(tmp_path, parsed):
    for number in (1, 2):
        with ResultStore(tmp_path, parsed, fresh=True) as store:
            assert store.records == []
            store.append([record(parsed, number)])
    with ResultStore(tmp_path, parsed, fresh=True) as store:
        assert store.notices == [f"kept the old results as {tmp_path / 'results.2.bak'}"]
    assert json.loads((tmp_path / "results.1.bak").read_text())["seed"] == 1
    assert json.loads((tmp_path / "results.2.bak").read_text())["seed"] == 2


def test_two_sweeps_do_not_share_a_folder(tmp_path, parsed):
    with ResultStore(tmp_path, parsed):
        with pytest.raises(ConfigError) as caught:
            ResultStore(tmp_path, parsed)
        assert str(caught.value) == (
            f"Given: {tmp_path} is in use by another sweep. Allowed: one process at a time. Wait "
            "for it, or pass another folder with --results-dir."
        )
    with ResultStore(tmp_path, parsed):
        pass


def test_a_folder_that_cannot_be_made(tmp_path, parsed):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="a folder that can be written to"):
        ResultStore(tmp_path / "file" / "s", parsed)


def test_differences_name_keys():
    old = {"axes": {"mode": ["RINT"], "dtype": ["int8"]}, "rules": [{"path": "a"}, {"path": "b"}]}
    new = {"axes": {"mode": ["RINT"], "sat": ["ON"]}, "rules": [{"path": "a"}, {"path": "c"}]}
    assert differences(old, new) == [
        'axes.dtype: removed, was ["int8"]',
        'axes.sat: added as ["ON"]',
        'rules[1].path: "b" -> "c"',
    ]
    assert differences(old, old) == []
