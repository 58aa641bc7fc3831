"""Plotly figures as pictures, drawn with matplotlib.

    figure ─► panels (one for each pair of axes) ─► traces.py draws into them ─► PNG

Plotly draws in a browser, which machines do not have. The picture has the figure's data, axes,
colours and titles; spacing and fonts differ, and a line below says so. A figure with an unsupported
part has no picture, because an incomplete one would mislead.
"""

from .own import __builtins__
from html import unescape
from io import BytesIO
from re import compile as pattern
from warnings import catch_warnings, simplefilter

COLORWAY = (
    "#636efa", "#EF553B", "#00cc96", "#ab63fa", "#FFA15A",
    "#19d3f3", "#FF6692", "#B6E880", "#FF97FF", "#FECB52",
)  # fmt: skip
VIRIDIS = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")
BACKGROUND, GRID = "#E5ECF6", "white"
# Pixels of the picture, and around the panels.
SIZE, SMALLEST, LARGEST = (800, 500), 200, 2400
LEFT, RIGHT, TOP, BOTTOM, LEGEND, SCALE = 75, 30, 60, 90, 130, 90
MOST_VALUES = 2_000_000
GRIDS = ("heatmap", "contour", "histogram2d")
TAG = pattern(r"<[^>]*>")
RGB = pattern(r"rgba?\(([^)]*)\)")


class Undrawn(Exception):
    """The figure has an unsupported part."""


def picture(figure):
    """A PNG of a Plotly figure, or None."""
    try:
        from . import traces  # imports numpy, and needs matplotlib
        from matplotlib.style import context
    except ImportError:
        return None
    try:
        # the user's settings are for the user's own figures
        with catch_warnings(), context("default"):
            simplefilter("ignore")
            return traces.draw(figure)
    except Exception:
        return None  # the figure's other forms are shown


def clean(text):
    """A text without Plotly's tags, escaped so that matplotlib does not parse a formula."""
    text = unescape(TAG.sub("", str(text).replace("<br>", "\n")))
    return text.replace("$", r"\$")


def first(*values):
    """The first value that is set."""
    return next((value for value in values if value is not None), None)


def of(thing, *names):
    """An attribute that not every kind of trace has."""
    for name in names:
        thing = thing[name] if thing is not None and name in thing else None
    return thing


def colour(value, otherwise=None):
    """One of Plotly's colours, in matplotlib's form."""
    from matplotlib.colors import is_color_like

    found = RGB.fullmatch(value.replace(" ", "")) if isinstance(value, str) else None
    if found:
        red, green, blue, *alpha = (float(part) for part in found[1].split(","))
        return (red / 255, green / 255, blue / 255, alpha[0] if alpha else 1.0)
    return value if isinstance(value, str) and is_color_like(value) else otherwise


class Axis:
    """An axis of the figure: converts its values to numbers."""

    def __init__(self, layout, kind):
        self.layout = layout
        self.kind = {"category": "category", "date": "date"}.get(layout.type or kind)
        self.is_log = layout.type == "log"
        self.names = {}
        self.register(layout.categoryarray if layout.categoryarray is not None else ())
        if layout.type == "multicategory":
            raise Undrawn

    def register(self, names):
        for name in names:
            self.names.setdefault(str(name), len(self.names))

    def numbers(self, values):
        import numpy

        values = numpy.asarray(values)
        if values.ndim != 1:
            raise Undrawn
        if values.dtype.kind in "iufb" and self.kind != "category":
            return values.astype(float)
        if values.dtype.kind == "M" and self.kind != "category":
            return self._dates(values)
        values = values.tolist()
        given = [value for value in values if value is not None]
        if self.kind is None:
            self.kind = kind_of(given)
        if self.kind == "date":
            return self._dates(numpy.array([stamp(value) for value in values], "datetime64[us]"))
        if self.kind == "category":
            self.register(given)
            return numpy.array([self.names.get(str(value), numpy.nan) for value in values])
        return numpy.array([numpy.nan if value is None else float(value) for value in values])

    def _dates(self, values):
        from matplotlib.dates import date2num

        self.kind = "date"
        return date2num(values)

    def finish(self, own):
        """Ticks, title, range and scale of matplotlib's axis."""
        name, layout = own.axis_name, self.layout
        if self.kind == "category":
            own.set_ticks(range(len(self.names)), [clean(text) for text in self.names])
        elif self.kind == "date":
            own.axis_date()
        if layout.tickvals is not None and self.kind is None:
            texts = layout.ticktext
            texts = None if texts is None else [clean(text) for text in texts]
            own.set_ticks([float(value) for value in layout.tickvals], texts)
        if max((len(text.get_text()) for text in own.get_ticklabels()), default=0) > 8:
            own.set_tick_params(labelrotation=30 if name == "x" else 0)
        if layout.title.text:
            own.set_label_text(clean(layout.title.text))
        if layout.visible is False or layout.showticklabels is False:
            own.set_tick_params(labelleft=False, labelbottom=False)
        self._scale(own, layout)

    def _scale(self, own, layout):
        axes, name = own.axes, own.axis_name
        if self.is_log:
            getattr(axes, f"set_{name}scale")("log")
        limits = layout.range
        if limits is not None and None not in limits:
            ends = [10.0**float(end) for end in limits] if self.is_log else self.ends(limits)
            getattr(axes, f"set_{name}lim")(*ends)
        elif layout.autorange == "reversed":
            own.set_inverted(True)

    def ends(self, limits):
        numeric = self.kind == "category" and all(not isinstance(end, str) for end in limits)
        return [float(end) for end in limits] if numeric else self.numbers(list(limits))


def kind_of(values):
    """The type of texts: dates, numbers or categories."""
    texts = [value for value in values if isinstance(value, str)]
    for kind, read in (("date", stamp), (None, float)):
        try:
            for value in values if kind is None or len(texts) < len(values) else texts:
                read(value)
            return kind
        except (TypeError, ValueError):
            pass
    return "category"


def stamp(value):
    from datetime import date, datetime

    if value is None or isinstance(value, date):
        return value
    if not isinstance(value, str) or len(value) < 7:
        raise ValueError(value)
    return datetime.fromisoformat(value).replace(tzinfo=None)


class Panel:
    """A pair of axes, and the traces on them."""

    def __init__(self, axes, x, y):
        self.axes, self.x, self.y = axes, x, y
        self.traces = []


class Chart:
    """A Plotly figure, and the matplotlib figure it is drawn in."""

    def __init__(self, layout, traces):
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure

        self.layout, self.traces = layout, traces
        if sum(weight(trace) for trace in self.traces) > MOST_VALUES:
            raise Undrawn
        size = (self.layout.width, self.layout.height)
        self.size = [
            min(max(first(own, usual), SMALLEST), LARGEST) for own, usual in zip(size, SIZE)
        ]
        self.paper = Figure(figsize=[side / 100 for side in self.size], dpi=100)
        FigureCanvasAgg(self.paper)
        self.colorway = self.layout.colorway or self.layout.template.layout.colorway or COLORWAY
        self.known, self.panels, self.legend = {}, {}, {}
        self.scales, self.next_colour = [], 0
        self.box = self._box()

    def _box(self):
        """Positions of panels, as fractions of the picture."""
        width, height = self.size
        right = RIGHT + LEGEND * self.has_legend() + SCALE * self.has_scale()
        if right + LEFT > width * 0.7:
            raise Undrawn
        title = TOP if self.layout.title.text or self.layout.annotations else TOP / 2
        return (
            LEFT / width, BOTTOM / height, 1 - right / width, 1 - title / height
        )  # fmt: skip

    def has_legend(self):
        named = [trace for trace in self.traces if of(trace, "showlegend") is not False]
        several = len(named) > 1 or any(trace.type == "pie" for trace in named)
        return bool(named) and bool(first(self.layout.showlegend, several))

    def has_scale(self):
        def own(trace):
            shown = of(trace, "marker", "coloraxis") or of(trace, "marker", "showscale")
            return shown or (trace.type in GRIDS and trace.showscale is not False)

        return any(own(trace) for trace in self.traces)

    def axis(self, name):
        """The axis that a trace calls `x2`."""
        layout = self.layout[f"{name[0]}axis{name[1:]}"]
        if name not in self.known:
            self.known[name] = Axis(layout, None)
            same = layout.matches
            if same and same[0] == name[0] and same != name:
                self.known[name].names = self.axis(same).names
        return self.known[name]

    def panel(self, trace):
        names = (trace.xaxis or "x", trace.yaxis or "y")
        if names not in self.panels:
            x, y = (self.axis(name) for name in names)
            over = [axis.layout.overlaying for axis in (x, y)]
            below = self.panels.get((over[0] or names[0], over[1] or names[1]))
            if below is not None and any(over):
                axes = below.axes.twinx() if over[1] else below.axes.twiny()
            else:
                axes = self.place(x.layout.domain, y.layout.domain)
                axes.set_facecolor(BACKGROUND)
                axes.grid(color=GRID)
            axes.set_axisbelow(True)
            axes.spines[:].set_visible(False)
            self.panels[names] = Panel(axes, x, y)
        return self.panels[names]

    def place(self, across, up):
        (left, bottom, right, top), (x0, x1), (y0, y1) = self.box, across or (0, 1), up or (0, 1)
        width, height = right - left, top - bottom
        return self.paper.add_axes(
            (left + x0 * width, bottom + y0 * height, (x1 - x0) * width, (y1 - y0) * height)
        )

    def colour(self, *given):
        """The colour of a trace: its own, else the next of the figure's."""
        for value in given:
            if isinstance(value, str) and (found := colour(value)) is not None:
                return found
        self.next_colour += 1
        return colour(self.colorway[(self.next_colour - 1) % len(self.colorway)], "#636efa")

    def scale(self, own, values):
        """Colours for numbers: matplotlib's map, and the numbers at its ends."""
        from matplotlib.colors import LinearSegmentedColormap
        import numpy

        shared = of(own, "coloraxis")
        own = self.layout[shared] if shared else own
        stops = own.colorscale or self.layout.template.layout.colorscale.sequential
        if not stops:
            stops = [(at / (len(VIRIDIS) - 1), one) for at, one in enumerate(VIRIDIS)]
        stops = [(float(at), colour(one, "#000000")) for at, one in stops]
        ends = [of(own, name) for name in ("cmin", "cmax", "zmin", "zmax")]
        low, high = first(ends[0], ends[2]), first(ends[1], ends[3])
        low, high = first(low, numpy.nanmin(values)), first(high, numpy.nanmax(values))
        map_ = LinearSegmentedColormap.from_list("plotly", stops)
        title = own.colorbar.title.text if own.showscale is not False else None
        return (map_.reversed() if own.reversescale else map_), float(low), float(high), title

    def add_scale(self, drawn, title):
        """One scale of colours beside the panels: traces that share one come once."""
        if self.scales:
            return
        left, bottom, right, top = self.box
        own = self.paper.add_axes((right + 0.02, bottom, 0.02, top - bottom))
        self.scales.append(own)
        bar = self.paper.colorbar(drawn, cax=own)
        if title:
            bar.set_label(clean(title))

    def png(self):
        for panel in self.panels.values():
            panel.x.finish(panel.axes.xaxis)
            panel.y.finish(panel.axes.yaxis)
        if self.layout.title.text:
            self.paper.suptitle(clean(self.layout.title.text), x=self.box[0], ha="left")
        if self.has_legend() and self.legend:
            self._add_legend()
        note = "Plotly chart, drawn with matplotlib: spacing and fonts differ"
        self.paper.text(0.995, 0.008, note, fontsize=6, color="#999999", ha="right")
        file = BytesIO()
        self.paper.savefig(file, format="png")
        return file.getvalue()

    def _add_legend(self):
        right = self.box[2] + (SCALE / self.size[0] if self.has_scale() else 0)
        title = self.layout.legend.title.text
        self.paper.legend(
            self.legend.values(),
            [clean(name) for name in self.legend],
            title=clean(title) if title else None,
            loc="upper left",
            bbox_to_anchor=(right + 0.005, self.box[3]),
            frameon=False,
            fontsize=8,
        )


def weight(trace):
    """How many values a trace has."""
    total = 0
    for name in ("x", "y", "z", "values"):
        values = of(trace, name)
        total += getattr(values, "size", None) or (len(values) if values is not None else 0)
    return total
