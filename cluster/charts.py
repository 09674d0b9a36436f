"""Charts as inline SVG text: no script, no font, no file beside the page.

Colours are CSS classes (``c-<name>``) that the page defines for light and dark. Every text is escaped here, since task
names and statuses come from files that anyone may have written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from markupsafe import Markup, escape

WIDTH, WIDE, HEIGHT = 480, 1000, 220
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 34
"""Units of the drawing: about pixels where the page shows two charts side by side, or a wide one alone."""
MAX_X_LABELS = 12
"""More labels than this would touch each other."""

_Scale = Callable[[float], float]
"""From a value to a coordinate of the drawing."""
_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Series:
    """One line of a chart."""

    name: str
    colour: str
    """CSS class without its "c-"."""
    points: tuple[tuple[float, float], ...]  # (x, y), x ascending
    band: tuple[tuple[float, float, float], ...] = ()  # (x, low, high) shaded behind the line
    dots_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Chart:
    """A drawing with its caption and legend."""

    title: str
    svg: Markup
    legend: tuple[tuple[str, str], ...]
    """(colour class, name)."""
    note: str = ""


def nice_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """Round numbers (1, 2, 2.5 or 5 times a power of ten) that cover [low, high] in about `count` intervals."""
    if not (math.isfinite(low) and math.isfinite(high)):
        raise ValueError(f"ticks need finite bounds, got {low} and {high}")
    if high - low < 1e-9 * max(1.0, abs(low), abs(high)):
        margin = 0.05 * abs(low) or 0.5
        low, high = low - margin, high + margin
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def line_chart(
    title: str,
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    rule: float | None = None,
    include_zero: bool = False,
    note: str = "",
) -> Chart | None:
    """Lines over a numeric x axis; `rule` is a dashed horizontal line. None when there is nothing to draw."""
    drawn = [one for one in series if one.points]
    if not drawn:
        return None
    xs = [x for one in drawn for x, _ in one.points]
    ys = [y for one in drawn for _, y in one.points] + [y for one in drawn for _, *ends in one.band for y in ends]
    ys += [rule] if rule is not None else []
    ys += [0.0] if include_zero else []
    ticks = nice_ticks(min(ys), max(ys))
    x_low, x_high = min(xs), max(xs)
    if x_low == x_high:
        x_low, x_high = x_low - 0.5, x_high + 0.5
    padding = 0.03 * (x_high - x_low)
    x_low, x_high = x_low - padding, x_high + padding

    def px(x: float) -> float:
        return LEFT + (x - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def py(y: float) -> float:
        return HEIGHT - BOTTOM - (y - ticks[0]) / (ticks[-1] - ticks[0]) * (HEIGHT - TOP - BOTTOM)

    parts = [_y_axis(ticks, py, y_label)]
    parts += [_x_tick(px(x), f"{x:g}") for x in _thinned(sorted({x for x in xs if x == int(x)}))]
    if rule is not None:
        parts.append(f'<line class="rule" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{py(rule):.1f}" y2="{py(rule):.1f}"/>')
    for one in drawn:
        parts += _band(one, px, py)
    for one in drawn:
        parts += _line(one, px, py)
    return Chart(
        title=title,
        svg=_svg(title, parts, x_label),
        legend=tuple((one.colour, one.name) for one in drawn),
        note=note,
    )


def stacked_bars(
    title: str,
    labels: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    colours: Mapping[str, str],
    *,
    x_label: str,
    y_label: str,
    note: str = "",
    wide: bool = False,
) -> Chart | None:
    """One bar a label, cut into the parts in their order. None when all are empty."""
    totals = [sum(values[i] for values in parts.values()) for i in range(len(labels))]
    if not labels or max(totals) <= 0:
        return None
    ticks = nice_ticks(0.0, max(totals))

    def py(y: float) -> float:
        return HEIGHT - BOTTOM - y / ticks[-1] * (HEIGHT - TOP - BOTTOM)

    across = WIDE if wide else WIDTH
    slot = (across - LEFT - RIGHT) / len(labels)
    width = max(min(slot * 0.7, 64.0), 0.5)
    drawn = [_y_axis(ticks, py, y_label, across)]
    shown = set(_thinned(list(range(len(labels)))))
    for i, label in enumerate(labels):
        middle = LEFT + slot * (i + 0.5)
        if i in shown:
            drawn.append(_x_tick(middle, label))
        base = 0.0
        for name, values in parts.items():
            if values[i] <= 0:
                continue
            top = base + values[i]
            hover = escape(f"{x_label} {label}: {name} {values[i]:.4g}")
            drawn.append(
                f'<rect class="c-{escape(colours[name])}" x="{middle - width / 2:.1f}" y="{py(top):.1f}" '
                f'width="{width:.1f}" height="{py(base) - py(top):.1f}"><title>{hover}</title></rect>'
            )
            base = top
    used = [name for name, values in parts.items() if any(value > 0 for value in values)]
    return Chart(
        title=title,
        svg=_svg(title, drawn, x_label, across),
        legend=tuple((colours[name], name) for name in used),
        note=note,
    )


def interval_bar(low: float, middle: float, high: float, scale_high: float) -> Markup:
    """A small interval on a log axis from 1/2 to `scale_high` with a mark at 1, for a table cell."""
    width, height = 120, 16
    left, right = math.log(0.5), math.log(max(scale_high, 2.0) * 1.05)

    def px(value: float) -> float:
        return 2 + (width - 4) * min(max((math.log(max(value, 1e-9)) - left) / (right - left), 0.0), 1.0)

    return Markup(
        f'<svg class="interval" viewBox="0 0 {width} {height}" width="{width}" height="{height}" aria-hidden="true">'
        f'<line class="rule" x1="{px(1):.1f}" x2="{px(1):.1f}" y1="1" y2="{height - 1}"/>'
        f'<line class="whisker" x1="{px(low):.1f}" x2="{px(high):.1f}" y1="{height / 2}" y2="{height / 2}"/>'
        f'<circle class="mark" cx="{px(middle):.1f}" cy="{height / 2}" r="3.2"/></svg>'
    )


def _svg(title: str, parts: Sequence[str], x_label: str, across: int = WIDTH) -> Markup:
    caption = (
        f'<text class="axis" x="{(LEFT + across - RIGHT) / 2}" y="{HEIGHT - 4}" text-anchor="middle">'
        f"{escape(x_label)}</text>"
    )
    return Markup(
        f'<svg class="chart" viewBox="0 0 {across} {HEIGHT}" role="img" aria-label="{escape(title)}">'
        + "".join(parts)
        + caption
        + "</svg>"
    )


def _y_axis(ticks: Sequence[float], py: _Scale, label: str, across: int = WIDTH) -> str:
    lines = []
    for tick in ticks:
        y = py(tick)
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{across - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        lines.append(f'<text class="axis" x="{LEFT - 6}" y="{y + 3.5:.1f}" text-anchor="end">{_short(tick)}</text>')
    middle = (TOP + HEIGHT - BOTTOM) / 2
    lines.append(
        f'<text class="axis" x="11" y="{middle}" text-anchor="middle" transform="rotate(-90 11 {middle})">'
        f"{escape(label)}</text>"
    )
    return "".join(lines)


def _x_tick(x: float, label: str) -> str:
    return f'<text class="axis" x="{x:.1f}" y="{HEIGHT - BOTTOM + 15}" text-anchor="middle">{escape(label)}</text>'


def _line(one: Series, px: _Scale, py: _Scale) -> list[str]:
    parts = []
    if not one.dots_only:
        path = " ".join(f"{px(x):.1f},{py(y):.1f}" for x, y in one.points)
        parts.append(f'<polyline class="line c-{escape(one.colour)}" points="{path}"/>')
    radius = 3 if len(one.points) <= 60 else 1.5
    if one.dots_only or len(one.points) <= 60:
        for x, y in one.points:
            hover = escape(f"{one.name}, {x:g}: {y:.4g}")
            parts.append(
                f'<circle class="c-{escape(one.colour)}" cx="{px(x):.1f}" cy="{py(y):.1f}" r="{radius}">'
                f"<title>{hover}</title></circle>"
            )
    return parts


def _band(one: Series, px: _Scale, py: _Scale) -> list[str]:
    if not one.band:
        return []
    if len(one.band) == 1:  # an area of no width would not be seen
        x, low, high = one.band[0]
        return [
            f'<rect class="band c-{escape(one.colour)}" x="{px(x) - 6:.1f}" y="{py(high):.1f}" width="12" '
            f'height="{max(py(low) - py(high), 1):.1f}"/>'
        ]
    there = [f"{px(x):.1f},{py(high):.1f}" for x, _, high in one.band]
    back = [f"{px(x):.1f},{py(low):.1f}" for x, low, _ in reversed(one.band)]
    return [f'<polygon class="band c-{escape(one.colour)}" points="{" ".join(there + back)}"/>']


def _thinned(values: list[_T]) -> list[_T]:
    return values[:: math.ceil(len(values) / MAX_X_LABELS)] if values else []


def _short(value: float) -> str:
    if abs(value) >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:.10g}" if abs(value) >= 1e-3 or value == 0 else f"{value:.1e}"
