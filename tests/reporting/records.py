"""Made-up trials, written without the code under test."""

import itertools
import json
import math

CONFIG = {
    "name": "made-up",
    "task": "somewhere:make",
    "seeds": [0, 1, 2],
    "policy": {"target": None, "rules": [{"path": ".*", "input": {"dtype": "$dtype"}}]},
    "axes": {"dtype": ["fp4_e2m1", "int8"], "mode": ["RINT", "TRUNC"], "satmode": ["ON", "OFF"]},
    "baseline": {"dtype": "fp32"},
    "task_args": {"steps": 4},
}


def line(kind, axes, seed, accuracy, loss, config=None, **changes):
    fields = {
        "kind": kind,
        "axes": axes,
        "seed": seed,
        "status": "ok" if math.isfinite(loss) else "diverged",
        "metrics": {"accuracy": accuracy, "loss": loss if math.isfinite(loss) else None},
        "curve": {"step": [2, 4], "loss": [2.0, loss if math.isfinite(loss) else None]},
        "seconds": 0.25,
        "program": 2,
        "compilations": 2,
        "policy_hash": "abc",
        "target": None,
        "config": config or CONFIG,
        "config_hash": "0123456789ab",
        "versions": {"npusim": "0.1.0", "jax": "1.2.3"},
        "finished": "2024-01-01T00:00:00+00:00",
    }
    return fields | changes


def lines(config=CONFIG):
    """Every trial, the second combination's last seed diverged."""
    found = [
        line(
            "baseline",
            dict.fromkeys(config["axes"]) | config["baseline"],
            seed,
            0.9 + seed / 50,
            0.125,
            config,
        )
        for seed in config["seeds"]
    ]
    points = itertools.product(*config["axes"].values())
    for number, point in enumerate(points):
        axes = dict(zip(config["axes"], point, strict=True))
        for seed in config["seeds"]:
            loss = math.nan if (number, seed) == (1, 2) else 0.2 + number / 10 + seed / 100
            found.append(line("trial", axes, seed, 0.5 + number / 20 + seed / 70, loss, config))
    return found


def write(folder, items):
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(item) + "\n" for item in items)
    (folder / "results.jsonl").write_text(text)
    return folder
