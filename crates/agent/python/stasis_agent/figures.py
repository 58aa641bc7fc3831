"""Images of libraries with their own display: matplotlib, plotly, altair, PIL, and IPython.

Nothing is imported for them. A finder waits for their modules and changes one function each when
user code imports them, so that `show()` shows in the reports of the machine.
"""

import sys

from .own import __builtins__, is_a
from .channel import decode
from .charts import picture
from importlib.util import find_spec
from io import BytesIO
from os import environ
from subprocess import run

RENDER = """
import sys, vl_convert
sys.stdout.buffer.write(vl_convert.vegalite_to_png(sys.stdin.read()))
"""


class Figures:
    def __init__(self, session):
        self.session = session
        self.hooks = {
            "matplotlib.pyplot": self._pyplot,
            "plotly.io._renderers": self._plotly,
            "PIL.Image": self._pil,
            "IPython.core.display_functions": self._ipython,
        }

    def install(self):
        # Subprocesses inherit it, so it names a backend that exists everywhere.
        environ.setdefault("MPLBACKEND", "Agg")
        self.session.formatter.extra += [matplotlib_bundle, plotly_bundle, vega_bundle]
        sys.meta_path.insert(0, Finder(self.hooks))

    def flush(self, value=None):
        """Shows open figures and closes them; `value` is shown elsewhere, so it is only closed."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        numbers = pyplot.get_fignums() if hasattr(pyplot, "get_fignums") else ()
        for number in numbers:
            figure = pyplot.figure(number)
            pyplot.close(figure)
            if figure is not value:
                self.session.display(figure)

    def _pyplot(self, module):
        original = module.show

        def show(*arguments, **named):
            """Shows the open figures and closes them."""
            if self.session.channel.ours():
                self.flush()
            else:
                original(*arguments, **named)

        module.show = show

    def _plotly(self, module):
        def show(fig, *_arguments, **_named):
            """Shows a figure."""
            from plotly.graph_objects import Figure

            self.session.display(Figure(fig) if isinstance(fig, dict) else fig)

        module.show = show

    def _pil(self, module):
        def show(image, *_arguments, **_named):
            """Shows the picture."""
            self.session.display(image)

        module.Image.show = show

    def _ipython(self, module):
        module.display = self.session.display


class Finder:
    """Finds a module like the other finders, and calls a function once it has been loaded."""

    def __init__(self, hooks):
        self.hooks = hooks

    def find_spec(self, name, path=None, target=None):
        hook = self.hooks.pop(name, None)
        if hook is None:
            return None
        try:
            spec = find_spec(name)  # comes here again, and passes: the hook is taken
        except (ImportError, ValueError):
            spec = None
        if spec is None or not hasattr(spec.loader, "exec_module"):
            self.hooks[name] = hook
            return None
        spec.loader = Loader(spec.loader, hook)
        return spec


class Loader:
    def __init__(self, loader, hook):
        self._loader = loader
        self._hook = hook

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        module.__loader__ = module.__spec__.loader = self._loader
        try:
            self._hook(module)
        except Exception:
            pass  # another version of the library: its `show` stays as it is


def matplotlib_bundle(value):
    module = sys.modules.get("matplotlib.figure")
    if module is None or not is_a(value, module.Figure):
        return None
    file = BytesIO()
    value.savefig(file, format="png", bbox_inches="tight")
    return {"image/png": file.getvalue()}


def plotly_bundle(value):
    module = sys.modules.get("plotly.basedatatypes")
    if module is None or not is_a(value, module.BaseFigure):
        return None
    bundle = {
        "application/vnd.plotly.v1+json": decode(value.to_json()),
        "text/html": value.to_html(full_html=False, include_plotlyjs="cdn"),
    }
    # Plotly's own renderer needs a browser, which machines seldom have
    own = drawn(lambda: value.to_image(format="png")) if find_spec("kaleido") else None
    image = own if isinstance(own, bytes) else picture(value)
    return bundle if image is None else {**bundle, "image/png": image}


def vega_bundle(value):
    """Charts of altair; as a picture too, where there is a renderer."""
    chart = getattr(sys.modules.get("altair"), "TopLevelMixin", None)
    if not isinstance(chart, type) or not is_a(value, chart):
        return None
    found = value._repr_mimebundle_()
    bundle = dict(found[0] if isinstance(found, tuple) else found)
    spec = value.to_json()
    if not any(kind.startswith("application/vnd.vega") for kind in bundle):
        bundle["application/vnd.vegalite+json"] = decode(spec)
    if "image/png" not in bundle and find_spec("vl_convert") is not None:
        bundle["image/png"] = drawn(lambda: rendered(spec))
    return bundle


def rendered(spec):
    """An image of a Vega-Lite chart, made by a separate process: the renderer has a V8, whose
    threads and memory would become part of the machine's state."""
    done = run([sys.executable, "-c", RENDER], input=spec.encode(), capture_output=True, timeout=60)
    if done.returncode:
        lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise RuntimeError(lines[-1] if lines else "the renderer ended with %d" % done.returncode)
    return done.stdout


def drawn(draw):
    """An image, or why there is none: the other forms of a chart are still shown."""
    try:
        return draw()
    except Exception as error:
        return error
