"""Heat maps and training curves, as SVG text.

matplotlib is imported here when a plot is drawn, through its object interface: no window system,
no global state.
"""

import base64
import io
import math
from typing import TYPE_CHECKING, Any

from npusim.reporting.summary import Summary
from npusim.reporting.tables import Layout, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, told apart by colour-blind readers; line styles tell them apart in
# black and white print as well.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (3, 2)))
DIVERGED = "#d9d9d9"


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def svg(figure: "Figure") -> str:
    """Return the figure as SVG text, without a date and without addresses."""
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Type": None})
    return text.getvalue()


def data_uri(svg_text: str) -> str:
    """Return the SVG as an address that holds the picture itself."""
    return "data:image/svg+xml;base64," + base64.b64encode(svg_text.encode()).decode()


def heat_map(summary: Summary) -> "Figure":
    """The headline metric over two axes, one panel for each value of the others."""
    from matplotlib import colormaps
    from matplotlib.colors import Normalize

    axes, layout = summary.axes, Layout.of(summary.axes)
    points = layout.facet_points(axes)
    xs, ys = axes[layout.across], axes[layout.down] if layout.down else [None]
    means = [row.metrics[summary.headline].mean for row in summary.rows]
    known = [m for m in means if m is not None]
    low, high = limits(known)
    norm = Normalize(low, high, clip=True)
    beyond = {(True, True): "both", (True, False): "min", (False, True): "max"}
    extend = beyond.get((min(known, default=low) < low, max(known, default=high) > high), "neither")
    columns = min(len(points), 2)
    lines = math.ceil(len(points) / columns)
    width = max(1.0 + 0.95 * len(xs), 3.2) * columns + 1.0
    figure = _figure(width, (1.3 + 0.5 * len(ys)) * lines + 0.4)
    panels = figure.subplots(lines, columns, squeeze=False).ravel().tolist()
    image = None
    for panel, point in zip(panels, points, strict=False):
        grid = [[_mean(summary, layout, point, x, y) for x in xs] for y in ys]
        shown = [[math.nan if v is None else v for v in line] for line in grid]
        cmap = colormaps["viridis"].with_extremes(bad=DIVERGED)
        # Not imshow, which would put a picture of pixels into the SVG.
        image = panel.pcolormesh(
            edges(len(xs)), edges(len(ys)), shown, cmap=cmap, norm=norm, shading="flat"
        )
        panel.invert_yaxis()
        _name_axes(panel, layout, xs, ys, point)
        for i, y in enumerate(ys):
            for j, x in enumerate(xs):
                text = _cell_text(summary, layout, point, x, y)
                value = grid[i][j]
                dark = value is not None and norm(value) < 0.6
                panel.text(
                    j,
                    i,
                    text,
                    ha="center",
                    va="center",
                    fontsize=8.5,
                    color="white" if dark else "black",
                )
    for panel in panels[len(points) :]:
        panel.set_visible(False)
    if image is not None:
        label_text = f"held-out {summary.headline}"
        bar = figure.colorbar(image, ax=panels, label=label_text, shrink=0.85, extend=extend)
        for solid in filter(None, [bar.solids]):
            solid.set_rasterized(False)
            solid.set_edgecolor("face")
    return figure


def limits(values: list[float]) -> tuple[float, float]:
    """Return the ends of a colour scale for ``values``: outliers do not stretch it.

    Example:
        >>> limits([0.0, 0.5, 0.5, 0.5, 0.75])
        (0.4625, 0.5375)
    """
    import numpy as np

    if not values:
        return 0.0, 1.0
    first, third = np.quantile(values, [0.25, 0.75])
    # Where most cells agree their spread says nothing; a twentieth of the value then does.
    reach = max(3 * (third - first), 0.05 * max(abs(v) for v in values))
    low = float(max(min(values), first - reach))
    high = float(min(max(values), third + reach))
    return (low, high) if high > low else (low, low + 1e-9)


def edges(cells: int) -> list[float]:
    """Return the borders of cells that are centred on 0, 1, 2 ...

    Example:
        >>> edges(2)
        [-0.5, 0.5, 1.5]
    """
    return [k - 0.5 for k in range(cells + 1)]


def _at(layout: Layout, point: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
    return point | {layout.across: x} | ({layout.down: y} if layout.down else {})


def _mean(summary: Summary, layout: Layout, point: dict[str, Any], x: Any, y: Any) -> float | None:
    row = summary.find(**_at(layout, point, x, y))
    return None if row is None else row.metrics[summary.headline].mean


def _cell_text(summary: Summary, layout: Layout, point: dict[str, Any], x: Any, y: Any) -> str:
    row = summary.find(**_at(layout, point, x, y))
    if row is None:
        return "not run"
    mean = row.metrics[summary.headline].mean
    count = f"{row.diverged}/{len(row.seeds)} div." if row.diverged else ""
    return "\n".join(t for t in ("" if mean is None else f"{mean:.3f}", count) if t)


def _name_axes(panel: "Axes", layout: Layout, xs: list, ys: list, point: dict[str, Any]) -> None:
    panel.set_xticks(range(len(xs)), [label(x) for x in xs], fontsize=9)
    panel.set_xlabel(layout.across)
    panel.set_yticks(range(len(ys)), ["" if y is None else label(y) for y in ys], fontsize=9)
    panel.set_ylabel(layout.down or "")
    panel.tick_params(length=0)
    for x in range(1, len(xs)):
        panel.axvline(x - 0.5, color="white", linewidth=1)
    for y in range(1, len(ys)):
        panel.axhline(y - 0.5, color="white", linewidth=1)
    panel.set_title(title(point), fontsize=10)


def title(point: dict[str, Any]) -> str:
    """Return the name of a panel.

    Example:
        >>> title({"satmode": "ON"})
        'satmode ON'
    """
    return ", ".join(f"{name} {label(value)}" for name, value in point.items())


def curves(summary: Summary) -> "Figure":
    """Training loss against step, mean over seeds, the baseline in each panel.

    A cross marks where a seed had its last finite loss.
    """
    axes, layout = summary.axes, Layout.of(summary.axes)
    points = layout.facet_points(axes)
    downs = axes[layout.down] if layout.down else [None]
    columns = min(len(downs), 6)
    lines = math.ceil(len(downs) / columns) * len(points)
    figure = _figure(max(2.35 * columns, 4.5) + 0.3, 2.1 * lines + 0.7)
    grid = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    base = [r.curve for r in summary.records if r.kind == "baseline"]
    handles: dict[str, Any] = {}
    per_point = lines // len(points)
    for p, point in enumerate(points):
        for d, down in enumerate(downs):
            panel = grid[p * per_point + d // columns][d % columns]
            name = {layout.down: down} if layout.down else {}
            panel.set_title(title(name | point) or summary.config["name"], fontsize=9)
            if base:
                handles["baseline"] = panel.plot(
                    *_mean_curve(base), color="black", linewidth=2.2, alpha=0.45, zorder=1
                )[0]
            for i, value in enumerate(axes[layout.across]):
                at = {n: _at(layout, point, value, down)[n] for n in axes}
                _draw_curve(summary, panel, at, i, label(value), handles)
    _dress_curves(grid)
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside upper center",
        ncols=min(len(handles), 8),
        fontsize=9,
        frameon=False,
    )
    return figure


def _draw_curve(
    summary: Summary, panel: "Axes", at: dict[str, Any], i: int, name: str, handles: dict[str, Any]
) -> None:
    from matplotlib.lines import Line2D

    runs = [r.curve for r in summary.records if r.kind == "trial" and r.axes == at]
    if not runs:
        return
    colour = COLOURS[i % len(COLOURS)]
    steps, losses = _mean_curve(runs)
    handles[name] = panel.plot(
        steps, losses, color=colour, linestyle=STYLES[i % len(STYLES)], linewidth=1.3, zorder=2
    )[0]
    for run in runs:
        if run["loss"][-1] is not None:
            continue
        handles["diverged"] = Line2D([], [], color="#666666", marker="x", linestyle="")
        last = max((k for k, v in enumerate(run["loss"]) if v is not None), default=None)
        marker = {"color": colour, "marker": "x", "markersize": 6, "linestyle": "", "zorder": 3}
        if last is None:
            # Nothing to stand on: a place of its own at the upper edge.
            panel.plot([0.08 + 0.12 * i], [0.93], transform=panel.transAxes, **marker)
        else:
            panel.plot([steps[last]], [losses[last]], **marker)


def _dress_curves(grid: Any) -> None:
    drawn = [v for panel in grid.flat for line in panel.lines for v in line.get_ydata()]
    # Losses that reach zero or go below (a log likelihood, say) have no logarithm.
    positive = all(v > 0 for v in drawn if math.isfinite(v))
    bottom = len(grid) - 1
    for i, row in enumerate(grid):
        for j, panel in enumerate(row):
            if not panel.get_title():
                panel.set_visible(False)
                continue
            panel.set_yscale("log" if positive else "linear")
            panel.grid(alpha=0.25)
            panel.tick_params(labelsize=8)
            if i == bottom or not grid[i + 1][j].get_title():
                panel.set_xlabel("step", fontsize=9)
                panel.tick_params(labelbottom=True)
            if j == 0:
                panel.set_ylabel("training loss", fontsize=9)


def _mean_curve(runs: list[dict[str, list[Any]]]) -> tuple[list[float], list[float]]:
    """Steps, and at each the mean over the seeds whose loss is finite there."""
    losses = []
    for values in zip(*(run["loss"] for run in runs), strict=False):
        known = [v for v in values if v is not None]
        losses.append(sum(known) / len(known) if known else math.nan)
    return runs[0]["step"][: len(losses)], losses
