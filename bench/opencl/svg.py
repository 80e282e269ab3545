"""Line charts as SVG text, with the features that the reports need."""

import math
from html import escape

COLORS = ["#222222", "#0969da", "#d1242f", "#1a7f37", "#8250df", "#bc4c00"]
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 400, 72, 16, 40, 56


def ticks(low, high, log):
    if log:
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        return [10.0**d for d in decades]
    step = 10 ** math.floor(math.log10(high or 1))
    while high / step < 4:
        step /= 2
    return [i * step for i in range(int(high / step) + 2)]


def number(value):
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"


def chart(title, x_title, y_title, series, log_x=True, log_y=True, x_labels=None, is_dense=False):
    """series: {name: [(x, y), …]}. x_labels: {x: text} instead of computed ticks. is_dense: no
    marks at the points, and the names of the series above the lines. None without points."""
    points = [p for line in series.values() for p in line if p[1] > 0]
    if not points:
        return None
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    y_ticks = ticks(min(ys), max(ys) * (1.3 if is_dense else 1), log_y)
    y_low, y_high = (
        (y_ticks[0], y_ticks[-1]) if len(y_ticks) > 1 else (y_ticks[0], y_ticks[0] * 10 or 1)
    )
    x_ticks = sorted(x_labels) if x_labels else ticks(min(xs), max(xs), log_x)
    x_low, x_high = (min(xs), max(xs)) if x_labels else (x_ticks[0], x_ticks[-1])

    def scale(value, low, high, log, start, end):
        if high == low:
            return (start + end) / 2
        share = (
            math.log(value / low) / math.log(high / low) if log else (value - low) / (high - low)
        )
        return start + share * (end - start)

    def x_at(x):
        return scale(x, x_low, x_high, log_x, LEFT + 12, WIDTH - RIGHT - 12)

    def y_at(y):
        return scale(y, y_low, y_high, log_y, HEIGHT - BOTTOM, TOP)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 '
        f'{WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    for y in y_ticks:
        at = y_at(y)
        out.append(
            f'<path d="M{LEFT} {at:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
            f'<text x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{number(y)}</text>'
        )
    for x in x_ticks:
        at = x_at(x)
        label = escape(x_labels[x]) if x_labels else number(x)
        out.append(
            f'<path d="M{at:.1f} {HEIGHT - BOTTOM}v4" stroke="#666"/>'
            f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{label}</text>'
        )
    out.append(
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" '
        f'text-anchor="middle">{escape(x_title)}</text>'
        f'<text transform="translate(16 {(TOP + HEIGHT - BOTTOM) / 2}) rotate(-90)" '
        f'text-anchor="middle">{escape(y_title)}</text>'
    )
    for i, (name, line) in enumerate(series.items()):
        color = COLORS[i % len(COLORS)]
        line = sorted(p for p in line if p[1] > 0)
        path = " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y in line)
        out.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>')
        marks = [] if is_dense else line
        out += [
            f'<circle cx="{x_at(x):.1f}" cy="{y_at(y):.1f}" r="3" '
            f'fill="{color}"><title>{escape(name)}: {y:.4g}</title></circle>'
            for x, y in marks
        ]
        out.append(
            f'<rect x="{LEFT + 14}" y="{TOP + 8 + 18 * i}" width="14" height="4" fill="{color}"/>'
            f'<text x="{LEFT + 34}" y="{TOP + 15 + 18 * i}">{escape(name)}</text>'
        )
    out.append("</svg>")
    return "\n".join(out) + "\n"
