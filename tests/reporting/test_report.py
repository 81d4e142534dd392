"""Numbers in reports are those of the trials, and pages stand alone."""

import csv
import html.parser
import io
import json
import re
import statistics
import xml.etree.ElementTree

import pytest

from npusim._errors import ConfigError
from npusim.reporting import pages, plots, tables
from npusim.reporting.records import read_records
from npusim.reporting.summary import Stat, summarise
from tests.reporting import records


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return records.write(tmp_path_factory.mktemp("made-up"), records.lines())


@pytest.fixture(scope="module")
def summary(folder):
    return summarise(read_records(folder))


@pytest.fixture(scope="module")
def page(summary, folder):
    pages.render(summary, folder)
    return (folder / "report.html").read_text()


class Page(html.parser.HTMLParser):
    """Collects the cells of tables and every address that a browser would fetch."""

    def __init__(self, text):
        super().__init__()
        self.tables, self.addresses, self.alts, self._text = [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attrs = dict(attrs)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self._text = ""
        elif tag == "img":
            self.alts.append(attrs.get("alt"))
        self.addresses += [attrs[k] for k in ("src", "href", "data", "action") if k in attrs]

    def handle_data(self, data):
        if self._text is not None:
            self._text += data

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.tables[-1][-1].append(self._text)
            self._text = None


def expected_cells():
    """The full table from the raw lines, by the definition of mean and spread."""
    groups = {}
    for item in records.lines():
        groups.setdefault((item["kind"], *item["axes"].values()), []).append(item)
    base = statistics.fmean(
        r["metrics"]["accuracy"] for r in groups["baseline", "fp32", None, None]
    )
    for key, group in groups.items():
        cells = []
        for name in ("accuracy", "loss"):
            values = [r["metrics"][name] for r in group]
            if None in values:
                cells.append(f"not finite {values.count(None)}/3")
            else:
                cells.append(f"{statistics.fmean(values):.4f} ± {statistics.stdev(values):.4f}")
        mean = statistics.fmean(r["metrics"]["accuracy"] for r in group)
        diverged = sum(r["status"] == "diverged" for r in group)
        yield [*(k or "-" for k in key), "3", *cells, f"{mean - base:+.4f}", f"{diverged}/3"]


def test_each_cell_of_the_html_table_is_recomputed_from_the_lines(page):
    pivot, full, facts = Page(page).tables
    assert full[1:] == list(expected_cells())
    assert full[0] == [
        "kind",
        "dtype",
        "mode",
        "satmode",
        "seeds",
        "accuracy",
        "loss",
        "accuracy - baseline",
        "diverged",
    ]
    by_axes = {tuple(row[1:4]): row[5] for row in full[1:]}
    assert pivot[0] == ["dtype", "satmode", "RINT", "TRUNC"]
    for dtype, satmode, *cells in pivot[1:]:
        assert cells == [by_axes[dtype, mode, satmode] for mode in ("RINT", "TRUNC")]
    assert len(pivot) == 5
    assert ["compilations", "2"] in facts
    assert ["jax", "1.2.3"] in facts
    assert ["trials", "27 of 27 finished"] in facts


def test_the_page_refers_to_nothing_outside_itself(page):
    parsed = Page(page)
    assert len(parsed.addresses) == 2
    assert all(a.startswith("data:image/svg+xml;base64,") for a in parsed.addresses)
    assert all(parsed.alts)
    visible = re.sub(r"base64,[A-Za-z0-9+/=]+", "", page)
    assert not re.search(r"https?:|//|@import|url\(|<script|<link", visible)
    assert "Baseline dtype fp32: accuracy 0.9200 ± 0.0200, loss 0.1250 ± 0.0000." in page
    assert "Not complete" not in page


def test_pictures_are_valid_and_refer_to_nothing(summary):
    for figure in (plots.heat_map(summary), plots.curves(summary)):
        text = plots.svg(figure)
        root = xml.etree.ElementTree.fromstring(text)
        assert root.tag.endswith("svg")
        for element in root.iter():
            for name, value in element.attrib.items():
                if name.endswith("href"):
                    assert value.startswith("#")


def test_markdown_has_the_same_table(summary, folder, page):
    text = (folder / "summary.md").read_text()
    for cells in expected_cells():
        assert "| " + " | ".join(cells) + " |" in text
    assert "# made-up" in text


def test_csv_has_each_trial(folder, page):
    rows = list(csv.DictReader(io.StringIO((folder / "results.csv").read_text())))
    lines = records.lines()
    assert len(rows) == len(lines) == 27
    for row, item in zip(rows, lines, strict=True):
        assert row["seed"] == str(item["seed"])
        assert row["mode"] == (item["axes"]["mode"] or "")
        assert row["status"] == item["status"]
        assert float(row["accuracy"]) == item["metrics"]["accuracy"]
        assert row["loss"] == (
            "" if item["metrics"]["loss"] is None else str(item["metrics"]["loss"])
        )
        assert row["jax"] == "1.2.3"


def test_tables_for_machines_have_numbers(summary):
    rows = json.loads(tables.to_json(summary))
    assert len(rows) == 9
    assert rows[0]["kind"] == "baseline"
    assert rows[0]["accuracy_mean"] == pytest.approx(0.92)
    assert rows[2]["loss_mean"] is None
    assert rows[2]["diverged"] == 1
    read = list(csv.DictReader(io.StringIO(tables.to_csv(summary))))
    assert [r["satmode"] for r in read][:3] == ["", "ON", "OFF"]
    assert float(read[1]["accuracy_mean"]) == rows[1]["accuracy_mean"]
    assert read[2]["loss_mean"] == ""


def test_the_terminal_table_shows_the_headline(summary):
    from rich.console import Console

    out = io.StringIO()
    Console(file=out, width=120).print(tables.rich_table(summary))
    text = out.getvalue()
    assert "made-up: held-out accuracy" in text
    assert "baseline: 0.9200 ± 0.0200" in text
    assert "0.5143 ± 0.0143" in text


def test_a_partial_report_says_so(tmp_path):
    records.write(tmp_path, records.lines()[:7])
    summary = summarise(read_records(tmp_path))
    pages.render(summary, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "Not complete: 7 of 27 trials have finished." in page
    assert Page(page).tables[0][1:][0] == ["fp4_e2m1", "ON", "0.5143 ± 0.0143", ""]


@pytest.mark.parametrize(
    "axes",
    [
        {"dtype": ["int8"]},
        {"width": [1, 2, 3]},
        {"width": [1, 2], "mode": ["RINT"]},
        {
            "dtype": ["int8", "bf16"],
            "mode": ["RINT", "ODD"],
            "satmode": ["ON", "OFF"],
            "ste": ["identity", "clip"],
        },
        {"dtype": [f"d{i}" for i in range(14)], "mode": [f"m{i}" for i in range(9)]},
    ],
)
def test_any_number_of_axes(tmp_path, axes):
    config = records.CONFIG | {"axes": axes, "baseline": None, "seeds": [0]}
    items = [item for item in records.lines(config | {"baseline": {}}) if item["kind"] == "trial"]
    for item in items:
        item["config"] = config
    records.write(tmp_path, items)
    summary = summarise(read_records(tmp_path))
    assert summary.baseline is None
    assert len(summary.records) == summary.planned == len(items)
    pages.render(summary, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert "Baseline none." in page
    columns, lines = tables.pivot(summary)
    assert all(len(line) == len(columns) for line in lines)
    assert all(cell for line in lines for cell in line)


def test_a_sweep_for_a_chip_names_it(tmp_path):
    items = records.lines()
    for item in items[3:]:
        item["target"] = "950PR ascendc memory"
    records.write(tmp_path, items)
    assert pages.facts(summarise(read_records(tmp_path)))["target"] == "950PR ascendc memory"


def test_a_small_spread_has_the_decimals_of_its_mean(tmp_path):
    values = {"accuracy": [0.5, 0.50001, 0.50002], "loss": [1e-6, 2e-6, 3e-6]}
    items = records.lines()[:3]
    for i, item in enumerate(items):
        item["metrics"] = {name: found[i] for name, found in values.items()}
    records.write(tmp_path, items)
    summary = summarise(read_records(tmp_path))
    assert tables.cell(summary.rows[0], "accuracy") == "0.5000 ± 0.0000"
    assert tables.cell(summary.rows[0], "loss") == "2.00e-06 ± 1.00e-06"


def test_everything_diverged(tmp_path):
    items = records.lines()
    for item in items:
        item["metrics"] = {"accuracy": None, "loss": None}
        item["status"] = "diverged"
        item["curve"]["loss"] = [None, None]
    records.write(tmp_path, items)
    summary = summarise(read_records(tmp_path))
    pages.render(summary, tmp_path)
    assert "not finite 3/3" in (tmp_path / "summary.md").read_text()


def test_losses_below_zero_can_be_drawn(tmp_path):
    items = records.lines()
    for item in items:
        item["curve"]["loss"] = [1.0, -2.0]
    records.write(tmp_path, items)
    figure = plots.curves(summarise(read_records(tmp_path)))
    assert {panel.get_yscale() for panel in figure.axes} == {"linear"}


def test_stat():
    assert Stat.of([2.0]) == Stat(2.0, None, 0)
    assert Stat.of([1.0, None, None]) == Stat(None, None, 2)
    assert Stat.of([1.0, 2.0, 3.0]) == Stat(2.0, 1.0, 0)


def test_folders_without_results(tmp_path):
    with pytest.raises(ConfigError) as caught:
        read_records(tmp_path)
    assert str(caught.value) == (
        f"Given: {tmp_path}/results.jsonl: No such file or directory. Allowed: a folder with "
        "results.jsonl. Pass the folder that `npusim sweep` named at its end."
    ) or "Is a directory" in str(caught.value)
    records.write(tmp_path, [])
    with pytest.raises(ConfigError, match="no finished trial"):
        read_records(tmp_path)
    other = records.line("trial", {}, 0, 0.5, 1.0, config_hash="ffff")
    records.write(tmp_path, [records.lines()[0], other])
    with pytest.raises(ConfigError, match="trials of 2 different configurations"):
        read_records(tmp_path)


def test_a_line_being_written_is_not_read(tmp_path):
    records.write(tmp_path, records.lines()[:2])
    with (tmp_path / "results.jsonl").open("a") as file:
        file.write('{"kind": "tri')
    assert len(read_records(tmp_path)) == 2
