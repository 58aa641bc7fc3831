"""Instructions: their values, names, sources, and how they end."""

import unittest

from machine import LIMIT, OneMachine


class Values(OneMachine, unittest.TestCase):
    def test_last_expression_is_the_value(self):
        self.assertEqual(self.machine.value("a = 20\nb = 22\na + b"), "42")
        self.assertEqual(self.machine.value("_ + 1"), "43")

    def test_statements_and_none_have_no_value(self):
        for code in ("a = 1", "None", "", "# nothing", "\n\n", "for i in []: i"):
            report = self.machine.run(code)
            self.assertNotIn("value", report)
            self.assertNotIn("error", report)

    def test_semicolon_silences(self):
        for code in ("1;", "1 ; # why", "x = 2; x;", "(1,\n 2);"):
            self.assertIsNone(self.machine.value(code), code)
        for code in ("';'", "1 # ;", "x = 1; x"):
            self.assertIsNotNone(self.machine.value(code), code)

    def test_semicolon_after_wide_characters(self):
        self.assertIsNone(self.machine.value("'äöü€😀';"))
        self.assertEqual(self.machine.value("'äöü€😀'"), "'äöü€😀'")

    def test_runtime_is_measured(self):
        report = self.machine.run("import time; time.sleep(0.03)")
        self.assertGreaterEqual(report["runtime_ms"], 29)

    def test_plain_values_are_bundles_of_text(self):
        self.assertEqual(self.machine.run("[1, 'a']")["data"], {"text/plain": "[1, 'a']"})

    def test_long_values_are_cut_and_say_so(self):
        report = self.machine.run("'é' * 1000", most=101)
        self.assertEqual(report["value"], "'" + "é" * 50)
        self.assertIn("value cut to 101 of 2002 bytes", report["cut"])

    def test_what_utf8_cannot_hold_is_escaped(self):
        code = "class S:\n    def __repr__(self): return '\\udc80'\nS()"
        self.assertEqual(self.machine.value(code), "\\udc80")
        error = self.machine.error("raise ValueError('\\udc80')")
        self.assertEqual(error["message"], "\\udc80")

    def test_main_is_a_real_module(self):
        code = "import pickle, sys\nclass P:\n    def __init__(self): self.x = 3\n"
        code += "pickle.loads(pickle.dumps(P())).x, sys.modules['__main__'].P is P, __name__"
        self.assertEqual(self.machine.value(code), "(3, True, '__main__')")
        code = "from dataclasses import dataclass\n@dataclass\nclass D:\n    x: int = 1\nD()"
        self.assertEqual(self.machine.value(code), "D(x=1)")

    def test_sources_can_be_read_back(self):
        self.machine.run("def f():\n    return 'here'")
        self.machine.run("1 + 1")
        self.assertIn("return 'here'", self.machine.value("import inspect\ninspect.getsource(f)"))

    def test_future_imports_last(self):
        self.machine.run("from __future__ import annotations")
        self.assertEqual(
            self.machine.value("def g(x: Unknown): pass\ng.__annotations__"), "{'x': 'Unknown'}"
        )

    def test_argv_and_path_are_the_users(self):
        self.assertEqual(self.machine.value("import sys\nsys.argv, sys.path[0]"), "([''], '')")
        self.assertIsNone(self.machine.value("open('own_module.py', 'w').write('x = 5');"))
        self.assertEqual(self.machine.value("import own_module\nown_module.x"), "5")


class Errors(OneMachine, unittest.TestCase):
    def test_traceback_has_only_the_users_frames(self):
        self.machine.run("def outer():\n    return inner()\ndef inner():\n    return 1 / 0")
        error = self.machine.error("outer()")
        self.assertEqual(error["name"], "ZeroDivisionError")
        self.assertEqual(error["message"], "division by zero")
        self.assertIn("    return 1 / 0\n", error["traceback"])
        self.assertIn('File "<instruction ', error["traceback"])
        self.assertNotIn("stasis_agent", error["traceback"])
        self.assertTrue(error["traceback"].startswith("Traceback (most recent call last):\n"))

    def test_syntax_error_has_a_caret(self):
        error = self.machine.error("x = (1,\ndef f(): pass")
        self.assertEqual(error["name"], "SyntaxError")
        self.assertIn("^", error["traceback"])
        self.assertTrue(error["traceback"].startswith('  File "<instruction '), error["traceback"])

    def test_statements_before_a_failure_have_run(self):
        self.machine.error("kept = 5\n1 / 0")
        self.assertEqual(self.machine.value("kept"), "5")

    def test_chained(self):
        code = "try:\n    {}['k']\nexcept KeyError as e:\n    raise ValueError('v') from e"
        traceback = self.machine.error(code)["traceback"]
        self.assertIn("KeyError: 'k'", traceback)
        self.assertIn("direct cause", traceback)
        self.assertNotIn("stasis_agent", traceback)

    @unittest.skipIf(__import__("sys").version_info < (3, 11), "no groups before 3.11")
    def test_groups(self):
        traceback = self.machine.error(
            "raise ExceptionGroup('many', [ValueError('one'), TypeError('two')])"
        )["traceback"]
        self.assertIn("ValueError: one", traceback)
        self.assertIn("TypeError: two", traceback)

    def test_exceptions_that_cannot_be_printed(self):
        code = "class Bad(Exception):\n    def __str__(self): raise RuntimeError('no')\nraise Bad"
        error = self.machine.error(code)
        self.assertEqual(error["name"], "Bad")
        self.assertIn("cannot be printed", error["message"])
        self.assertIn("raise Bad", error["traceback"])

    def test_exit_ends_the_instruction_only(self):
        self.machine.run("kept = 1")
        for code in ("exit()", "quit(3)", "import sys; sys.exit(3)", "raise SystemExit('bye')"):
            error = self.machine.error(code)
            self.assertEqual(error["name"], "SystemExit")
            self.assertIn("the machine goes on", error["message"])
        self.assertEqual(self.machine.value("kept"), "1")

    def test_recursion_and_memory(self):
        self.assertEqual(self.machine.error("f = lambda: f()\nf()")["name"], "RecursionError")
        self.assertEqual(self.machine.error("b'x' * (1 << 62)")["name"], "MemoryError")
        self.assertEqual(self.machine.error("raise GeneratorExit")["name"], "GeneratorExit")

    def test_tracebacks_are_bounded(self):
        code = "import sys\nraise ValueError('x' * 10_000_000)"
        error = self.machine.error(code)
        self.assertLess(len(error["traceback"]), 70_000)
        self.assertLess(len(error["message"]), 70_000)
        self.assertIn("left out", error["message"])

    def test_deep_mutual_recursion_is_bounded(self):
        code = "import sys\nsys.setrecursionlimit(5000)\n"
        code += "def a(n): return b(n)\ndef b(n):\n    return a(n)\na(0)"
        error = self.machine.error(code)
        self.assertEqual(error["name"], "RecursionError")
        self.assertLess(len(error["traceback"]), 70_000)
        self.machine.run("sys.setrecursionlimit(1000)")

    def test_null_bytes_and_nonsense(self):
        self.assertIn(self.machine.error("x = 1\0")["name"], ("ValueError", "SyntaxError"))
        self.assertEqual(self.machine.error("   x = 1\n y")["name"], "IndentationError")

    def test_no_standard_input(self):
        for code in (
            "input('name? ')",
            "import sys; sys.stdin.read()",
            "import sys; sys.stdin.readline()",
            "import sys\nfor line in sys.stdin: pass",
            "import sys; sys.stdin.buffer.read()",
            "import getpass; getpass.getpass()",
            "breakpoint()",
        ):
            error = self.machine.error(code)
            self.assertEqual(error["name"], "StdinNotAvailable", (code, error))
            self.assertIn("no standard input", error["message"])
        # the debugger takes the end of input for `quit`
        error = self.machine.error("import pdb; pdb.set_trace()\nx = 1")
        self.assertEqual(error["name"], "BdbQuit", error)
        caught = "try:\n    input()\nexcept EOFError as error:\n    print(error)"
        self.machine.run(caught)
        self.assertIn("no standard input", self.machine.stream("stdout"))


class Orders(OneMachine, unittest.TestCase):
    def test_nonsense_is_named_and_ignored(self):
        for line in (b"nonsense\n", b'{"op": "dance"}\n', b"[]\n", b"\n", b'{"op": "exec"}\n', b"\xff\n"):
            self.machine.output = []
            self.machine.socket.sendall(line)
            while not self.machine.stream("stderr").endswith("\n"):
                self.assertTrue(self.machine.pump(LIMIT), line)
            self.assertIn("order not understood", self.machine.stream("stderr"))
        self.assertEqual(self.machine.value("1"), "1")

    def test_orders_sent_together_are_taken_one_by_one(self):
        for seq in (901, 902, 903):
            self.machine.order(op="exec", seq=seq, code="%d" % seq, max_bytes=100)
        reports = [self.machine.expect("done") for _ in range(3)]
        self.assertEqual([report["value"] for report in reports], ["901", "902", "903"])

    def test_orders_in_pieces_and_long_ones(self):
        code = "x = '%s'\nlen(x)" % ("é" * 500_000)
        self.assertEqual(self.machine.value(code), "500000")
        self.machine.socket.sendall(b'{"op":"exec","seq":904,')
        self.machine.socket.sendall(b'"code":"5","max_bytes":9}\n')
        self.assertEqual(self.machine.expect("done")["value"], "5")

    def test_control_socket_is_not_inherited(self):
        code = "import subprocess, sys\nsubprocess.run(['ls', '-l', '/proc/self/fd'],"
        code += " close_fds=False, capture_output=True, text=True).stdout"
        self.assertNotIn("socket", self.machine.value(code))

    def test_freeze(self):
        self.machine.order(op="freeze")
        self.machine.expect("frozen")
        self.assertNotEqual(self.machine.value("import gc\ngc.get_freeze_count()"), "0")
