"""Results in a notebook: IPython's own formatter shows them as it would have shown their values."""

import contextlib
import io

import stasis
from IPython.core.formatters import DisplayFormatter

show = DisplayFormatter().format
HTML = "class Bold:\n    def _repr_html_(self): return '<b>x</b>'\n"

with stasis.Client() as client, client.create_machine() as machine:
    shown, _ = show(machine.run(HTML + "Bold()"))
    assert shown["text/html"] == "<b>x</b>" and "Bold" in shown["text/plain"], shown
    assert show(machine.run("6 * 7"))[0] == {"text/plain": "42"}
    figure, _ = show(machine.run("import matplotlib.pyplot as plt\n_ = plt.plot([1]); plt.show()"))
    assert figure["image/png"].startswith("iVBORw0KGgo"), list(figure)
    assert "ZeroDivisionError" in show(machine.run("1 / 0"))[0]["text/plain"]
    result = machine.run("display(1)\ndisplay(2)")
    assert [show(one)[0]["text/plain"] for one in result.shown] == ["1", "2"]

    said, complained = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complained):
        machine.run("import sys\nprint('here')\nprint('there', file=sys.stderr)")
    assert (said.getvalue(), complained.getvalue()) == ("here\n", "there\n")
