"""Variables: described, completed, transferred."""

import importlib.util
import os
import unittest

from machine import Machine, OneMachine


class Touched(OneMachine, unittest.TestCase):
    def touched(self, code):
        return self.machine.run(code).get("touched", [])

    def test_bindings(self):
        self.assertEqual(self.touched("import os\na = 1\nb = [2]\ndef f(): pass"), ["a", "b", "f"])
        self.assertEqual(self.touched("a"), [])
        self.assertEqual(self.touched("a = 1"), [])
        self.assertEqual(self.touched("del a\nb = [2]"), ["a", "b"])
        self.assertEqual(self.touched("for i in range(3): pass"), ["i"])

    def test_changes_in_place(self):
        self.machine.run("x = [1]\ny = {'k': [1]}\nclass K: pass\nz = K()\nw = [0]")
        for code in ("x.append(2)", "x += [3]", "x[0] = 4", "if True:\n    del x[0]"):
            self.assertEqual(self.touched(code), ["x"], code)
        self.assertEqual(self.touched("y['k'][0] = 5\nz.a = 6"), ["y", "z"])
        self.assertEqual(self.touched("w[0] + y['k'][0]"), [])

    def test_hostile_names(self):
        self.machine.run("class S(str):\n def __hash__(self): return 1 / 0\n")
        code = "class T(str):\n def __lt__(self, o): raise ValueError\n __hash__ = str.__hash__\n"
        self.assertIsNone(self.machine.run(code + "globals()[T('q')] = 1\nr = 2").get("error"))
        self.assertEqual(self.touched("r = 3"), ["r"])


class Describe(OneMachine, unittest.TestCase):
    def vars(self):
        self.machine.output = []
        self.machine.order(op="vars")
        found = {one["name"]: one for one in self.machine.expect("vars")["vars"]}
        self.machine.pump(0)
        self.assertEqual(self.machine.output, [])
        return found

    def test_kinds(self):
        code = "import os\ni = 5\ns = 'text'\nl = [1, 2, [3]]\nd = {'a': 1}\nt = (1,)\nn = None\n"
        code += "def f(a): pass\nclass K: pass\nk = K()\n_private = 1\nbig = 10 ** 5000\n5"
        self.machine.run(code)
        found = self.vars()
        for name in ("os", "_", "__name__", "display"):
            self.assertNotIn(name, found)
        kinds = {name: one["kind"] for name, one in found.items()}
        self.assertEqual(kinds["i"], "int")
        self.assertEqual(kinds["f"], "function")
        self.assertEqual(kinds["K"], "class")
        self.assertEqual(kinds["k"], "__main__.K")
        self.assertIn("_private", kinds)
        self.assertEqual(found["l"]["repr"], "[1, 2, [3]]")
        self.assertEqual(found["l"]["shape"], "3")
        self.assertEqual(found["d"]["repr"], "{'a': 1}")
        self.assertEqual(found["t"]["repr"], "(1,)")
        self.assertEqual(found["n"]["repr"], "None")
        self.assertEqual(found["k"]["repr"], "<__main__.K object>")
        self.assertIn("bits", found["big"]["repr"])
        self.assertGreater(found["s"]["bytes"], 0)
        self.assertIsNone(found["f"]["digest"])

    def test_digests_follow_values(self):
        self.machine.run("same = [1, {'a': 'b'}]\nother = [1, {'a': 'b'}]\nodd = lambda: 0")
        before = self.vars()
        self.assertEqual(len(before["same"]["digest"]), 64)
        self.assertEqual(before["same"]["digest"], self.vars()["same"]["digest"])
        self.machine.run("same[1]['a'] = 'c'")
        self.assertNotEqual(before["same"]["digest"], self.vars()["same"]["digest"])

    def test_hostile_values(self):
        code = "import time\nclass Bad:\n    def __repr__(self): time.sleep(1000)\n"
        code += "    __str__ = __len__ = __reduce_ex__ = __sizeof__ = __getattr__ = __repr__\n"
        code += "class Raises:\n    def __getattribute__(self, name): raise RuntimeError(name)\n"
        code += "class Big(list):\n    def __repr__(self): time.sleep(1000)\n"
        code += "bad = [Raises(), Big()]\nraises = Raises()\nbig = Big()\nlong = ['x' * 10**6] * 10**5\n"
        code += "import threading\nlock = threading.Lock()\ncycle = []; cycle.append(cycle)\n"
        code += "globals()[5] = 6\nglobals()['\\udc80'] = 7"
        self.machine.run(code)
        found = self.vars()
        self.assertTrue(all(len(one["repr"]) <= 200 for one in found.values()))
        self.assertIsNone(found["lock"]["digest"])
        self.assertEqual(found["raises"]["kind"], "__main__.Raises")
        self.machine.run("del bad, raises, big, long, globals()[5]")

    @unittest.skipIf(importlib.util.find_spec("pandas") is None, "no pandas")
    def test_arrays_and_frames(self):
        code = "import numpy, pandas\na = numpy.zeros((1000, 3))\nsmall = numpy.arange(3)\n"
        code += "frame = pandas.DataFrame({'x': [1, 2], 'y': [3., 4.]})\nseries = frame.x"
        self.machine.run(code)
        found = self.vars()
        self.assertEqual(found["a"]["shape"], "(1000, 3)")
        self.assertEqual(found["a"]["bytes"], 24000)
        self.assertEqual(found["a"]["kind"], "numpy.ndarray")
        self.assertEqual(found["small"]["repr"], "array([0, 1, 2])")
        self.assertEqual(found["frame"]["shape"], "(2, 2)")
        self.assertIn("'x', 'y'", found["frame"]["repr"])
        self.assertEqual(found["series"]["shape"], "(2,)")
        self.assertTrue(all(found[name]["digest"] for name in ("a", "frame", "series")))


class Complete(OneMachine, unittest.TestCase):
    def complete(self, code, cursor=None):
        cursor = len(code) if cursor is None else cursor
        self.machine.order(op="complete", code=code, cursor=cursor)
        report = self.machine.expect("complete")
        return report["start"], report["names"]

    def test_names(self):
        self.machine.run("variable_one = 1\nvariable_two = 'x'")
        self.assertEqual(self.complete("é = vari"), (4, ["variable_one", "variable_two"]))
        self.assertEqual(self.complete("x\nvariable_o = 1", 11), (2, ["variable_one", "variable_two"]))
        self.assertIn("enumerate", self.complete("enum")[1])
        self.assertEqual(self.complete("contin"), (0, ["continue"]))
        self.assertEqual(self.complete("")[1], [])

    def test_attributes(self):
        self.machine.run("import os\ntext = 'x'")
        self.assertEqual(self.complete("y = text.starts"), (9, ["startswith"]))
        self.assertIn("join", self.complete("os.path.jo")[1])
        self.assertNotIn("__class__", self.complete("text.")[1])
        self.assertIn("__class__", self.complete("text.__cl")[1])
        self.assertEqual(self.complete("nothing.x")[1], [])
        self.assertEqual(self.complete("f(1).x")[1], [])

    def test_modules(self):
        found = self.complete("import jso")[1]
        self.assertIn("json", found)
        self.assertTrue(all(name.startswith("jso") for name in found))
        self.assertIn("path", self.complete("from os import pa")[1])
        self.machine.run("import json")
        self.assertEqual(self.complete("import json.deco"), (12, ["decoder"]))

    def test_properties_are_not_called(self):
        code = "called = []\nclass P:\n    @property\n    def p(self): called.append(1); return 'x'\n"
        self.machine.run(code + "    def __getattr__(self, name): called.append(2)\nthing = P()")
        self.assertEqual(self.complete("thing.p.up")[1], [])
        self.assertEqual(self.complete("thing.q.up")[1], [])
        self.assertEqual(self.complete("thing.")[1], ["p"])
        self.assertEqual(self.machine.value("called"), "[]")

    def test_a_bad_dir(self):
        self.machine.run("class B:\n    def __dir__(self): raise ValueError\nb = B()")
        self.assertEqual(self.complete("b.x")[1], [])


class Carry(OneMachine, unittest.TestCase):
    def carry(self, machine, **order):
        machine.order(**order)
        report = machine.expect("carried")
        return report["names"], report["failed"]

    def test_there_and_back(self):
        self.machine.run("a = [1]\nb = {'a': a}\nimport threading\nlock = threading.Lock()")
        path = os.path.join(self.machine.home.name, "vars")
        names, failed = self.carry(
            self.machine, op="save", names=["a", "lock", "b", "nothing"], path=path
        )
        self.assertEqual(names, ["a", "b"])
        self.assertEqual(set(failed), {"lock", "nothing"})
        other = Machine()
        try:
            self.assertEqual(self.carry(other, op="load", path=path), (["a", "b"], {}))
            self.assertEqual(other.value("a, b, b['a'] is a"), "([1], {'a': [1]}, True)")
        finally:
            other.close()

    def test_what_the_session_defined(self):
        self.machine.run("def f(x): return x + 1\nclass C:\n    y = 2\nc = C()\nplain = 5")
        path = os.path.join(self.machine.home.name, "defined")
        names, failed = self.carry(self.machine, op="save", names=["f", "c", "plain"], path=path)
        other = Machine()
        try:
            self.assertEqual(self.carry(other, op="load", path=path), (names, {}))
            if importlib.util.find_spec("cloudpickle"):
                self.assertEqual(other.value("f(1), c.y, plain"), "(2, 2, 5)")
            else:
                self.assertEqual(names, ["plain"])
                self.assertIn("cloudpickle", failed["c"])
        finally:
            other.close()

    def test_what_follows_a_bad_value_is_refused(self):
        with open(os.path.join(self.machine.home.name, "gone.py"), "w") as file:
            file.write("class G: pass")
        path = os.path.join(self.machine.home.name, "mixed")
        self.machine.run("import gone\none = [1]\ng = gone.G()\ntwo = [2, g]")
        self.carry(self.machine, op="save", names=["one", "g", "two"], path=path)
        other = Machine()
        try:
            names, failed = self.carry(other, op="load", path=path)
            self.assertEqual(names, ["one"])
            self.assertIn("gone", failed["g"])
            self.assertIn("may refer to g", failed["two"])
            self.assertEqual(other.value("one"), "[1]")
        finally:
            other.close()

    def test_files_that_are_none(self):
        names, failed = self.carry(self.machine, op="load", path="/nowhere/x")
        self.assertIn("FileNotFoundError", failed["/nowhere/x"])
        with open(os.path.join(self.machine.home.name, "junk"), "wb") as file:
            file.write(b"junk")
        names, failed = self.carry(self.machine, op="load", path="junk")
        self.assertIn("not a file of variables", failed["junk"])
        self.machine.run("v = 1")
        names, failed = self.carry(self.machine, op="save", names=["v"], path="/nowhere/x")
        self.assertEqual(names, [])
        self.assertIn("FileNotFoundError", failed["v"])
