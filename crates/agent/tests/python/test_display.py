"""Rich results: MIME bundles of values, `display`, and the libraries people plot with."""

import importlib.util
import tempfile
import unittest

from machine import OneMachine

PNG = "iVBORw0KGgo"


def needs(*names):
    missing = [name for name in names if importlib.util.find_spec(name) is None]
    return unittest.skipIf(missing, "not installed: %s" % ", ".join(missing))


# a chart as altair has them, and what draws such charts
CHARTS = """
import sys, types
class TopLevelMixin:
    def _repr_mimebundle_(self, *_, **__): return {"application/vnd.vegalite.v5+json": {"mark": "bar"}}
    def to_json(self): return '{"mark": "bar"}'
alt = sys.modules["altair"] = types.ModuleType("altair")
alt.TopLevelMixin, alt.Chart = TopLevelMixin, type("Chart", (TopLevelMixin,), {})
"""
RENDERER = """
import importlib.machinery, os
here = os.environ["PYTHONPATH"] = %r
def draws(body):
    with open(os.path.join(here, "vl_convert.py"), "w") as file:
        file.write("def vegalite_to_png(spec): " + body)
draws("return b'PNG ' + spec.encode()")
sys.modules["vl_convert"] = types.ModuleType("vl_convert")
sys.modules["vl_convert"].__spec__ = importlib.machinery.ModuleSpec("vl_convert", None)
"""


class Bundles(OneMachine, unittest.TestCase):
    def test_methods(self):
        code = """
class All:
    def __repr__(self): return 'plain'
    def _repr_html_(self): return '<b>'
    def _repr_markdown_(self): return '*m*'
    def _repr_svg_(self): return '<svg/>'
    def _repr_png_(self): return b'\\x89PNG'
    def _repr_latex_(self): return '$x$'
    def _repr_json_(self): return {'a': [1, 2.5, None]}
    def _repr_mimebundle_(self, include=None, exclude=None): return {'text/x': 'y'}, {}
"""
        self.machine.run(code)
        expected = {
            "text/plain": "plain",
            "text/html": "<b>",
            "text/markdown": "*m*",
            "image/svg+xml": "<svg/>",
            "image/png": "iVBORw==",
            "text/latex": "$x$",
            "application/json": {"a": [1, 2.5, None]},
            "text/x": "y",
        }
        self.assertEqual(self.machine.run("All()")["data"], expected)
        self.machine.run("display(All(), 5)")
        self.assertEqual([one["data"] for one in self.machine.displays], [expected, {"text/plain": "5"}])

    def test_jpeg_without_png(self):
        code = "class J:\n    def _repr_jpeg_(self): return b'\\xff\\xd8'\nJ()"
        self.assertEqual(self.machine.run(code)["data"]["image/jpeg"], "/9g=")

    def test_failing_formatters_break_nothing(self):
        code = "class F:\n    def __repr__(self): return 'F'\n"
        code += "    def _repr_html_(self): raise ValueError('oops')\n"
        code += "    def _repr_json_(self): return {'x': float('nan')}\n"
        code += "    def _repr_svg_(self): return 5\n    def _repr_latex_(self): return None\nF()"
        report = self.machine.run(code)
        self.assertEqual(report["data"], {"text/plain": "F"})
        self.assertIn("ValueError: oops", self.machine.stream("stderr"))
        self.assertIn("application/json", self.machine.stream("stderr"))

    def test_failing_repr(self):
        report = self.machine.run("class R:\n    def __repr__(self): raise ValueError('oops')\nR()")
        self.assertIn("repr failed", report["value"])
        self.assertIn("ValueError: oops", self.machine.stream("stderr"))
        report = self.machine.run("class N:\n    def __repr__(self): return None\nN()")
        self.assertIn("repr failed", report["value"])

    def test_classes_are_not_formatted(self):
        self.machine.run("class C:\n    def _repr_html_(self): return '<b>'")
        self.assertEqual(list(self.machine.run("C")["data"]), ["text/plain"])

    def test_objects_that_have_every_attribute(self):
        code = "from unittest.mock import MagicMock\nMagicMock()"
        self.assertEqual(list(self.machine.run(code)["data"]), ["text/plain"])

    def test_objects_that_fail_at_every_attribute(self):
        code = "class E:\n    def __getattribute__(self, name): raise RuntimeError(name)\n"
        report = self.machine.run(code + "    def __repr__(self): return 'E'\nE()")
        self.assertEqual(report["data"], {"text/plain": "E"})

    def test_large_entries_are_left_out(self):
        code = "class L:\n    def __repr__(self): return 'L'\n"
        code += "    def _repr_html_(self): return 'x' * 5000\n"
        code += "    def _repr_markdown_(self): return 'y' * 50\n"
        report = self.machine.run(code + "L()", most=1000)
        self.assertEqual(set(report["data"]), {"text/plain", "text/markdown"})
        self.assertEqual(report["cut"], "text/html left out, 5000 bytes")
        self.machine.run("display(L())", most=1000)
        self.assertIn("text/html left out", self.machine.displays[0]["cut"])

    def test_deep_json_is_left_out(self):
        code = "deep = []\nfor _ in range(500): deep = [deep]\n"
        code += "class D:\n    def _repr_json_(self): return deep\nD()"
        self.assertEqual(list(self.machine.run(code)["data"]), ["text/plain"])

    def test_bundles_of_nonsense(self):
        code = "class B:\n    def __repr__(self): return 'B'\n"
        code += "    def _repr_mimebundle_(self, **_): return {'text/plain': {}, 5: 'x', 'a/b': set()}\nB()"
        self.assertEqual(self.machine.run(code)["data"], {"text/plain": "B"})

    def test_raw_display(self):
        self.machine.run("display({'text/html': '<i>'}, raw=True)")
        self.assertEqual(self.machine.displays[0]["data"], {"text/html": "<i>", "text/plain": ""})

    def test_display_from_a_forked_child_stays_off_the_socket(self):
        code = "import os\npid = os.fork()\nif pid == 0:\n    display('from the child')\n"
        self.machine.run(code + "else:\n    os.waitpid(pid, 0)")
        self.assertEqual(self.machine.displays, [])
        self.assertEqual(self.machine.stream("stdout"), "'from the child'\n")


class Libraries(OneMachine, unittest.TestCase):
    @needs("matplotlib")
    def test_open_figures_are_shown_and_closed(self):
        code = "import matplotlib.pyplot as plt\nplt.plot([1, 2])\nplt.figure()\nplt.plot([2, 1])"
        report = self.machine.run(code)
        self.assertIn("Line2D", report["value"])
        self.assertEqual(len(self.machine.displays), 2)
        for shown in self.machine.displays:
            self.assertTrue(shown["data"]["image/png"].startswith(PNG))
            self.assertIn("Figure", shown["data"]["text/plain"])
        self.assertEqual(self.machine.value("plt.get_fignums()"), "[]")
        self.assertEqual(self.machine.stream("stderr"), "")

    @needs("matplotlib")
    def test_show_shows_at_once(self):
        code = "import matplotlib.pyplot as plt\nfor i in range(2):\n    plt.plot([i])\n"
        self.machine.run(code + "    plt.show()\n    print(i)")
        self.assertEqual(len(self.machine.displays), 2)
        self.assertEqual(
            [kind for kind, _ in self.machine.output], ["display", "stdout"] * 2
        )

    @needs("matplotlib")
    def test_a_figure_as_value_is_shown_once(self):
        report = self.machine.run("import matplotlib.pyplot as plt\nfig, ax = plt.subplots()\nfig")
        self.assertTrue(report["data"]["image/png"].startswith(PNG))
        self.assertEqual(self.machine.displays, [])
        report = self.machine.run("fig")
        self.assertTrue(report["data"]["image/png"].startswith(PNG))

    @needs("matplotlib")
    def test_figures_of_a_failed_instruction(self):
        report = self.machine.run("import matplotlib.pyplot as plt\nplt.plot([1])\n1 / 0")
        self.assertEqual(report["error"]["name"], "ZeroDivisionError")
        self.assertEqual(len(self.machine.displays), 1)

    @needs("pandas")
    def test_frames(self):
        data = self.machine.run("import pandas\npandas.DataFrame({'a': [1, 2]})")["data"]
        self.assertIn("<table", data["text/html"])
        self.assertIn("a\n0  1", data["text/plain"])

    @needs("PIL")
    def test_pictures(self):
        data = self.machine.run("from PIL import Image\nimg = Image.new('RGB', (2, 2))\nimg")["data"]
        self.assertTrue(data["image/png"].startswith(PNG))
        self.assertNotIn("image/jpeg", data)
        self.machine.run("img.show()")
        self.assertTrue(self.machine.displays[0]["data"]["image/png"].startswith(PNG))

    @needs("sklearn")
    def test_estimators(self):
        data = self.machine.run("from sklearn.svm import SVC\nSVC()")["data"]
        self.assertEqual(data["text/plain"], "SVC()")
        self.assertIn("text/html", data)

    @needs("plotly")
    def test_plotly(self):
        code = "import plotly.graph_objects as go\nfig = go.Figure(go.Bar(y=[2, 1]))\nfig"
        data = self.machine.run(code)["data"]
        self.assertEqual(data["application/vnd.plotly.v1+json"]["data"][0]["y"], [2, 1])
        self.assertIn("cdn", data["text/html"])
        self.assertLess(len(data["text/html"]), 50_000)
        self.assertTrue(data["image/png"].startswith(PNG))
        self.machine.run("fig.show()\nimport plotly.io\nplotly.io.show(fig)")
        self.assertEqual([set(one["data"]) for one in self.machine.displays], [set(data)] * 2)

    @needs("IPython")
    def test_ipython_display(self):
        self.machine.run("from IPython.display import display as show, HTML\nshow(HTML('<p>'))")
        self.assertEqual(self.machine.displays[0]["data"]["text/html"], "<p>")


class Untouched(OneMachine, unittest.TestCase):
    def test_charts_are_pictures_where_a_renderer_is(self):
        self.machine.run(CHARTS)
        data = self.machine.run("alt.Chart()")["data"]
        self.assertEqual(data["application/vnd.vegalite.v5+json"], {"mark": "bar"})
        self.assertNotIn("image/png", data)
        here = tempfile.TemporaryDirectory()
        self.addCleanup(here.cleanup)
        self.machine.run(RENDERER % here.name)
        data = self.machine.run("alt.Chart()")["data"]
        self.assertEqual(data["image/png"], "UE5HIHsibWFyayI6ICJiYXIifQ==")
        self.machine.run("draws('raise OSError(chr(110) + chr(111))')")
        data = self.machine.run("alt.Chart()")["data"]
        self.assertEqual(data["application/vnd.vegalite.v5+json"], {"mark": "bar"})
        self.assertNotIn("image/png", data)
        self.assertIn("image/png failed: RuntimeError: OSError: no", self.machine.stream("stderr"))

    def test_nothing_is_imported_for_pictures(self):
        self.machine.run("'value'")
        code = "import sys\n[m for m in ('matplotlib', 'numpy', 'PIL', 'pandas') if m in sys.modules]"
        self.assertEqual(self.machine.value(code), "[]")
