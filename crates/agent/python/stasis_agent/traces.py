"""The traces of a Plotly figure, each kind drawn into matplotlib's axes (charts.py)."""

from .own import __builtins__
from .charts import Chart, Undrawn, clean, colour, first, of
from base64 import b64decode
from io import BytesIO

import numpy

DASHES = {"dash": "--", "dot": ":", "dashdot": "-.", "longdash": "--", "longdashdot": "-."}
STEPS = {"hv": "steps-post", "vh": "steps-pre", "hvh": "steps-mid", "vhv": "steps-mid"}
SYMBOLS = {"square": "s", "diamond": "D", "cross": "P", "x": "X", "triangle-up": "^", "star": "*"}
# A bar's share of its space, and the number of markers that hide a line's own.
BAR, MANY = 0.8, 20
# Distances between letters and the point they belong to, in points.
NEAR = 4


class Drawing:
    """A trace, with the colour it has in this figure."""

    def __init__(self, chart, number, trace):
        self.chart, self.trace = chart, trace
        self.name = trace.name or f"trace {number}"
        plain = [of(trace, part, "color") for part in ("marker", "line")]
        self.colour = "white" if trace.type == "pie" else chart.colour(*plain)
        self.opacity = first(trace.opacity, 1.0)

    def note(self, artist):
        """Enters the trace into the legend, once for each name."""
        if of(self.trace, "showlegend") is not False:
            self.chart.legend.setdefault(self.name, artist)


def draw(figure):
    """A figure as a PNG; raises `Undrawn` if it has an unsupported part."""
    shown = [trace for trace in figure.data if trace.visible in (None, True)]
    if not shown or any(trace.type != "pie" and trace.type not in KINDS for trace in shown):
        raise Undrawn
    chart = Chart(figure.layout, shown)
    for one in [Drawing(chart, number, trace) for number, trace in enumerate(shown)]:
        if one.trace.type == "pie":
            pie(one)
        else:
            chart.panel(one.trace).traces.append(one)
    for panel in chart.panels.values():
        kinds = {KINDS[one.trace.type] for one in panel.traces}
        for kind in (kind for kind in dict.fromkeys(KINDS.values()) if kind in kinds):
            kind(chart, panel, [one for one in panel.traces if KINDS[one.trace.type] is kind])
    for shape in chart.layout.shapes or ():
        add_shape(chart, shape)
    for note in chart.layout.annotations or ():
        add_note(chart, note)
    return chart.png()


def points(panel, trace):
    """The coordinates of a trace; missing ones count from 0."""
    x, y = trace.x, trace.y
    if x is None and y is None:
        return numpy.array([]), numpy.array([])
    x = numpy.arange(len(y)) if x is None else x
    y = numpy.arange(len(x)) if y is None else y
    x, y = panel.x.numbers(x), panel.y.numbers(y)
    both = min(len(x), len(y))
    return x[:both], y[:both]


def scatter(chart, panel, drawings):
    stacked, last = {}, None
    for one in drawings:
        trace = one.trace
        x, y = points(panel, trace)
        floor = 0.0
        if trace.stackgroup:
            floor = stacked.get(trace.stackgroup, numpy.zeros(len(y)))
            if len(floor) != len(y):
                raise Undrawn
            y = stacked[trace.stackgroup] = floor + numpy.nan_to_num(y)
        elif trace.fill == "tonexty" and last is not None and len(last) == len(y):
            floor = last
        filled = trace.fill or ("tonexty" if trace.stackgroup else None)
        if filled in ("tozeroy", "tonexty"):
            fill = colour(trace.fillcolor, one.colour)
            area = panel.axes.fill_between(x, floor, y, color=fill, alpha=0.5, linewidth=0)
            one.note(area)
        elif filled not in (None, "none"):
            raise Undrawn
        last = y
        scatter_points(one, panel, x, y)


def scatter_points(one, panel, x, y):
    trace, axes = one.trace, panel.axes
    few = len(x) < MANY and not trace.stackgroup
    mode = trace.mode or ("lines+markers" if few else "lines")
    line = trace.line
    if "lines" in mode:
        own = colour(line.color, one.colour)
        style, steps = DASHES.get(line.dash, "-"), STEPS.get(line.shape, "default")
        width = first(line.width, 2) * 0.75
        (drawn,) = axes.plot(
            x, y, style, color=own, linewidth=width, drawstyle=steps, alpha=one.opacity
        )
        one.note(drawn)
    if "markers" in mode:
        one.note(markers(one, axes, x, y))
    if "text" in mode and trace.text is not None:
        texts = [trace.text] * len(x) if isinstance(trace.text, str) else trace.text
        for at, text in zip(zip(x, y), texts):
            axes.annotate(clean(text), at, (0, NEAR), textcoords="offset points", ha="center")
    for name in ("x", "y"):
        error = trace[f"error_{name}"]
        if error.array is not None and error.visible is not False:
            whole = {f"{name}err": numpy.asarray(error.array, float)}
            axes.errorbar(x, y, fmt="none", ecolor=one.colour, capsize=3, **whole)


def markers(one, axes, x, y):
    marker = one.trace.marker
    size = first(marker.size, 6)
    if not numpy.isscalar(size):
        size = numpy.nan_to_num(numpy.asarray(size, float)) / (marker.sizeref or 1)
        size = numpy.sqrt(numpy.abs(size)) if marker.sizemode == "area" else size
    area = numpy.maximum((numpy.asarray(size, float) * 0.75) ** 2, 1)
    symbol = marker.symbol if isinstance(marker.symbol, str) else ""
    style = {"s": area, "marker": SYMBOLS.get(symbol.removesuffix("-open"), "o"), "linewidths": 0}
    style["alpha"] = first(marker.opacity if numpy.isscalar(marker.opacity) else None, one.opacity)
    colours = marker.color
    if colours is None or isinstance(colours, str):
        return axes.scatter(x, y, color=[one.colour], **style)
    colours = numpy.asarray(colours)
    if colours.dtype.kind not in "iufb":
        return axes.scatter(x, y, color=[colour(value, one.colour) for value in colours], **style)
    map_, low, high, title = one.chart.scale(marker, colours)
    drawn = axes.scatter(x, y, c=colours, cmap=map_, vmin=low, vmax=high, **style)
    one.chart.add_scale(drawn, title)
    return drawn


class Bars:
    """Bars of one panel, beside, above or over each other, as the figure says."""

    def __init__(self, chart, panel, count, mode):
        self.panel, self.count, self.mode = panel, count, mode or "group"
        self.above, self.below = {}, {}

    def add(self, one, number, at, height, width, flat):
        beside = self.mode == "group" and self.count > 1
        room = width * (BAR if one.trace.type != "histogram" or beside else 1.0)
        if beside:
            at = at + room * ((number + 0.5) / self.count - 0.5)
            room /= self.count
        height, base = numpy.nan_to_num(height), numpy.zeros(len(height))
        if self.mode in ("stack", "relative"):
            for index, (key, value) in enumerate(zip(numpy.round(at, 9).tolist(), height)):
                side = self.above if value >= 0 or self.mode == "stack" else self.below
                base[index] = side.get(key, 0.0)
                side[key] = base[index] + value
        alpha = one.opacity if self.mode != "overlay" else first(one.trace.opacity, 0.6)
        fill = self.colours(one, len(height))
        axes = self.panel.axes
        whole = {"color": fill, "alpha": alpha}
        if flat:
            drawn = axes.barh(at, height, room, left=base, **whole)
        else:
            drawn = axes.bar(at, height, room, bottom=base, **whole)
        one.note(drawn)
        return drawn

    @staticmethod
    def colours(one, count):
        given = one.trace.marker.color
        if given is None or isinstance(given, str):
            return one.colour
        given = numpy.asarray(given)
        if given.dtype.kind not in "iufb":
            return [colour(value, one.colour) for value in given[:count]]
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import Normalize

        map_, low, high, title = one.chart.scale(one.trace.marker, given)
        mappable = ScalarMappable(Normalize(low, high), map_)
        one.chart.add_scale(mappable, title)
        return mappable.to_rgba(given[:count].astype(float))


def bars(chart, panel, drawings):
    # numbers first: all names of an axis are known before bars are placed
    found = []
    for one in drawings:
        flat = one.trace.orientation == "h"
        x, y = points(panel, one.trace)
        found.append((one, flat, *((y, x) if flat else (x, y))))
    every = numpy.unique(numpy.concatenate([at for _, _, at, _ in found]))
    gaps = numpy.diff(every[numpy.isfinite(every)])
    width = float(gaps.min()) if len(gaps) else 1.0
    all_bars = Bars(chart, panel, len(found), chart.layout.barmode)
    for number, (one, flat, at, height) in enumerate(found):
        if one.trace.base is not None:
            raise Undrawn
        drawn = all_bars.add(one, number, at, height, width, flat)
        text = one.trace.text
        if text is not None:
            texts = [text] * len(at) if isinstance(text, str) else text
            panel.axes.bar_label(drawn, [clean(value) for value in texts], fontsize=8)
        elif one.trace.texttemplate:
            panel.axes.bar_label(drawn, fmt="{:.4g}", fontsize=8)


def histograms(chart, panel, drawings):
    found = []
    for one in drawings:
        trace = one.trace
        flat = trace.orientation == "h" or (trace.x is None and trace.y is not None)
        axis, values = (panel.y, trace.y) if flat else (panel.x, trace.x)
        weights = trace.x if flat else trace.y
        if trace.histfunc not in (None, "count", "sum") or values is None:
            raise Undrawn
        weights = None if trace.histfunc != "sum" or weights is None else weights
        weights = None if weights is None else numpy.nan_to_num(numpy.asarray(weights, float))
        found.append((one, flat, axis.numbers(values), weights, axis))
    edges = edges_of([values for _, _, values, _, _ in found], found[0][0].trace, found[0][4])
    widths, middles = numpy.diff(edges), (edges[1:] + edges[:-1]) / 2
    all_bars = Bars(chart, panel, len(found), chart.layout.barmode or "stack")
    for number, (one, flat, values, weights, _) in enumerate(found):
        height, _ = numpy.histogram(values[numpy.isfinite(values)], edges, weights=weights)
        height = normed(height.astype(float), one.trace.histnorm, widths)
        if one.trace.cumulative.enabled:
            height = numpy.cumsum(height)
        all_bars.add(one, number, middles, height, widths[0], flat)


def edges_of(all_values, trace, axis):
    """Where bins begin and end, the same for all histograms of a panel."""
    values = numpy.concatenate(all_values)
    values = values[numpy.isfinite(values)]
    if axis.kind == "category":
        return numpy.arange(len(axis.names) + 1) - 0.5
    bins = trace.xbins if trace.orientation != "h" else trace.ybins
    if bins.size is not None and not isinstance(bins.size, str) and axis.kind is None:
        low, high = first(bins.start, values.min()), first(bins.end, values.max())
        count = max(1, min(10_000, int(numpy.ceil((high - low) / bins.size))))
        return low + numpy.arange(count + 1) * bins.size
    count = first(trace.nbinsx, trace.nbinsy)
    return numpy.histogram_bin_edges(values, min(int(count), 10_000) if count else "auto")


def normed(height, norm, widths):
    total = height.sum() or 1.0
    if norm in ("percent", "probability"):
        return height / total * (100 if norm == "percent" else 1)
    if norm == "density":
        return height / widths
    return height / total / widths if norm == "probability density" else height


def boxes(chart, panel, drawings):
    count = sum(1 for one in drawings if one.trace.offsetgroup) and len(
        dict.fromkeys(one.trace.offsetgroup for one in drawings)
    )
    groups = list(dict.fromkeys(one.trace.offsetgroup for one in drawings))
    mode = chart.layout.boxmode or chart.layout.violinmode
    beside = count if mode == "group" and count > 1 else 1
    for one in drawings:
        trace = one.trace
        flat = trace.orientation == "h"
        values, names = (trace.x, trace.y) if flat else (trace.y, trace.x)
        along, across = (panel.x, panel.y) if flat else (panel.y, panel.x)
        if values is None:
            raise Undrawn
        values = along.numbers(values)
        # texts are names of groups, also where they look like something else
        across.kind = across.kind or "category"
        names = [one.name] * len(values) if names is None else names
        at = across.numbers(names)
        room = BAR / beside
        shift = room * (groups.index(trace.offsetgroup) + 0.5) - BAR / 2 if beside > 1 else 0.0
        for place in numpy.unique(at[numpy.isfinite(at)]):
            own = values[: len(at)][at[: len(values)] == place]
            one_box(one, panel.axes, own[numpy.isfinite(own)], place + shift, room * 0.8, flat)


def one_box(one, axes, values, place, width, flat):
    if not len(values):
        return
    way = "horizontal" if flat else "vertical"
    whole = {"positions": [place], "widths": width, "orientation": way}
    if one.trace.type == "violin":
        parts = axes.violinplot([values], showmedians=True, showextrema=False, **whole)
        parts["bodies"][0].set(facecolor=one.colour, alpha=0.5)
        parts["cmedians"].set_color(one.colour)
        one.note(parts["bodies"][0])
        return
    parts = axes.boxplot(
        [values], patch_artist=True, manage_ticks=False,
        flierprops={"marker": "o", "markersize": 3, "markeredgecolor": one.colour}, **whole
    )  # fmt: skip
    parts["boxes"][0].set(facecolor=one.colour, alpha=0.6)
    parts["medians"][0].set_color("black")
    one.note(parts["boxes"][0])


def grids(chart, panel, drawings):
    for one in drawings:
        trace = one.trace
        if trace.type == "histogram2d":
            z, x, y = counted(panel, trace)
        else:
            z = numpy.asarray(trace.z, float)
            if z.ndim != 2:
                raise Undrawn
            x, y = (
                numpy.arange(count) if given is None else axis.numbers(given)
                for axis, given, count in zip((panel.x, panel.y), (trace.x, trace.y), z.shape[::-1])
            )
        if (len(y), len(x)) != z.shape:
            raise Undrawn
        map_, low, high, title = chart.scale(trace, z)
        whole = {"cmap": map_, "vmin": low, "vmax": high}
        if trace.type == "contour":
            drawn = panel.axes.contourf(x, y, z, 15, **whole)
        else:
            drawn = panel.axes.pcolormesh(x, y, z, shading="nearest", **whole)
        panel.axes.grid(False)
        if trace.showscale is not False:
            chart.add_scale(drawn, title)
        if trace.texttemplate and z.size <= 400:
            for row, column in numpy.ndindex(z.shape):
                light = sum(drawn.to_rgba(z[row, column])[:3]) > 1.5
                style = {"ha": "center", "va": "center", "fontsize": 9}
                style["color"] = "black" if light else "white"
                panel.axes.text(x[column], y[row], f"{z[row, column]:.4g}", **style)


def counted(panel, trace):
    if trace.histfunc not in (None, "count") or trace.z is not None:
        raise Undrawn
    x, y = points(panel, trace)
    names = (panel.x, trace.nbinsx), (panel.y, trace.nbinsy)
    edges = [
        numpy.arange(len(axis.names) + 1) - 0.5
        if axis.kind == "category"
        else numpy.histogram_bin_edges(values, min(int(count or 20), 1000))
        for (axis, count), values in zip(names, (x, y))
    ]
    z, across, up = numpy.histogram2d(x, y, edges)
    return z.T, (across[1:] + across[:-1]) / 2, (up[1:] + up[:-1]) / 2


def images(chart, panel, drawings):
    from matplotlib.image import imread

    for one in drawings:
        source, z = one.trace.source, one.trace.z
        if source is not None:
            kind, _, data = source.partition(",")
            if kind != "data:image/png;base64":
                raise Undrawn
            z = imread(BytesIO(b64decode(data)))
        else:
            z = numpy.asarray(z, float) / 255
        panel.axes.imshow(z, aspect="equal", origin="upper")
        panel.axes.grid(False)


def candles(chart, panel, drawings):
    for one in drawings:
        trace = one.trace
        at = panel.x.numbers(numpy.arange(len(trace.close)) if trace.x is None else trace.x)
        low, high, begin, end = (
            panel.y.numbers(part) for part in (trace.low, trace.high, trace.open, trace.close)
        )
        fill = ["#3D9970" if up else "#FF4136" for up in end >= begin]
        gaps = numpy.diff(numpy.unique(at))
        width = (float(gaps.min()) if len(gaps) else 1.0) * 0.6
        panel.axes.vlines(at, low, high, color=fill, linewidth=1)
        drawn = panel.axes.bar(at, end - begin, width, bottom=begin, color=fill)
        one.note(drawn)


def pie(one):
    trace, chart = one.trace, one.chart
    labels = trace.labels if trace.labels is not None else range(len(trace.values))
    values = trace.values if trace.values is not None else [1] * len(labels)
    total = {}
    for label, value in zip(labels, values):
        total[str(label)] = total.get(str(label), 0.0) + float(value or 0)
    parts = list(total.items())
    if trace.sort is not False:
        parts.sort(key=lambda part: -part[1])
    own = trace.marker.colors
    way = dict(zip(total, chart.colorway if own is None else own))
    fill = [colour(way.get(name), None) or chart.colour() for name, _ in parts]
    axes = chart.place(trace.domain.x, trace.domain.y)
    hole = {"width": 1 - (trace.hole or 0), "edgecolor": "white"}
    drawn = axes.pie(
        [value for _, value in parts], colors=fill, autopct="%.3g%%", startangle=90,
        counterclock=False, wedgeprops=hole, pctdistance=1 - hole["width"] / 2, normalize=True,
    )  # fmt: skip
    for (name, _), wedge in zip(parts, drawn[0]):
        if trace.showlegend is not False:
            chart.legend.setdefault(name, wedge)


def spot(chart, name, value, letter):
    """The panel of a shape or a note, and its position there. None for the picture itself."""
    left, bottom, right, top = chart.box
    ends = (left, right) if letter == "x" else (bottom, top)
    if name == "paper":
        return None, ends[0] + float(value) * (ends[1] - ends[0])
    name, _, domain = name.partition(" ")
    panel = next((own for key, own in chart.panels.items() if name in key), None)
    if panel is None:
        raise Undrawn
    own = getattr(panel, letter)
    if domain or (isinstance(value, (int, float)) and own.kind in (None, "category")):
        return panel, float(value)
    return panel, own.numbers([value])[0]


def panel_of(thing, across, up):
    """The panel of both coordinates, and how they map to positions in it."""
    if across is None or up is None:
        raise Undrawn
    inside = tuple((name or "").endswith(" domain") for name in (thing.xref, thing.yref))
    axes = across.axes
    return axes, {
        (True, True): axes.transAxes,
        (True, False): axes.get_yaxis_transform(),
        (False, True): axes.get_xaxis_transform(),
        (False, False): axes.transData,
    }[inside]


def add_shape(chart, shape):
    from matplotlib.patches import Rectangle

    if shape.type not in ("line", "rect"):
        raise Undrawn
    (across, x0), (_, x1) = (spot(chart, shape.xref or "x", at, "x") for at in (shape.x0, shape.x1))
    (up, y0), (_, y1) = (spot(chart, shape.yref or "y", at, "y") for at in (shape.y0, shape.y1))
    axes, transform = panel_of(shape, across, up)
    style = {"transform": transform, "alpha": first(shape.opacity, 1.0)}
    if shape.type == "rect":
        fill = colour(shape.fillcolor, "none")
        axes.add_patch(Rectangle((x0, y0), x1 - x0, y1 - y0, facecolor=fill, **style))
        return
    style.update(color=colour(shape.line.color, "#2a3f5f"))
    style.update(linestyle=DASHES.get(shape.line.dash, "-"), scalex=False, scaley=False)
    axes.plot([x0, x1], [y0, y1], **style)


def add_note(chart, note):
    if note.visible is False or not note.text:
        return
    across, x = spot(chart, note.xref or "x", note.x, "x")
    up, y = spot(chart, note.yref or "y", note.y, "y")
    style = {"rotation": -first(note.textangle, 0), "fontsize": 9}
    style["ha"] = note.xanchor if note.xanchor in ("left", "right") else "center"
    if across is None and up is None:
        chart.paper.text(x, y + 0.005, clean(note.text), **style)
        return
    axes, transform = panel_of(note, across, up)
    # on such an axis, positions of notes are logarithms; those of shapes are not
    if (across.x.is_log or up.y.is_log) and "domain" not in f"{note.xref}{note.yref}":
        x, y = (10.0**at if own.is_log else at for own, at in ((across.x, x), (up.y, y)))
    arrow = {"arrowstyle": "->"} if note.showarrow is not False else None
    pull = (first(note.ax, 0), -first(note.ay, -20)) if arrow else (0, NEAR)
    style.update(textcoords="offset points", xycoords=transform, arrowprops=arrow)
    axes.annotate(clean(note.text), (x, y), pull, annotation_clip=False, **style)


KINDS = {
    "image": images,
    "heatmap": grids,
    "contour": grids,
    "histogram2d": grids,
    "bar": bars,
    "histogram": histograms,
    "box": boxes,
    "violin": boxes,
    "candlestick": candles,
    "scatter": scatter,
    "scattergl": scatter,
}
