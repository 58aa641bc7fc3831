"""User code that breaks the process around it: the agent still answers."""

import time
import unittest

from machine import Machine, OneMachine

# Each is followed by checks that instructions, errors and output still work.
BREAKERS = {
    "builtins": "import builtins\nfor n in ('print', 'open', 'repr', 'len', 'isinstance', 'type',"
    " 'str', 'getattr', 'hasattr', 'min', 'max', 'list', 'dict', 'tuple', 'id', 'sorted'):\n"
    "    if n != 'print': setattr(builtins, n, None)",
    "own names": "print_ = print\nlen = repr = open = json = str = type = list = None",
    "patched modules": "import json, traceback, ast, time, os, linecache, pickle, io, signal\n"
    "def bad(*a, **k): raise RuntimeError('patched')\n"
    "for m in (json, traceback, ast, time, os, linecache, pickle):\n"
    "    for n in list(vars(m)):\n"
    "        if callable(getattr(m, n)) and not n.startswith('__') and n != 'fspath':\n"
    "            setattr(m, n, bad)",
    "deleted modules": "import sys\nfor n in list(sys.modules):\n"
    "    if n not in ('sys', 'builtins'): del sys.modules[n]",
    "cleared session": "globals().clear()",
    "cleared main": "import sys\nsys.modules.pop('__main__')",
    "tiny recursion limit": "import sys\nsys.setrecursionlimit(30)",
    "huge recursion limit": "import sys\nsys.setrecursionlimit(10**6)",
    "deleted directory": "import os, tempfile\nd = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)",
    "locale": "import locale\nlocale.setlocale(locale.LC_ALL, 'C')",
    "tracing": "import sys\ndef bad(*a): raise RuntimeError('traced')\n"
    "def trace(frame, event, arg):\n"
    "    if 'stasis_agent' in frame.f_code.co_filename: raise RuntimeError('traced')\n"
    "sys.settrace(trace); sys.setprofile(trace)",
    "garbage": "import gc\ngc.disable(); gc.set_threshold(1)",
    "hooks": "import sys\nsys.excepthook = sys.displayhook = sys.unraisablehook = None",
    "descriptors": "import os\nos.closerange(3, 400)",
    "warnings": "import warnings\nwarnings.simplefilter('error')",
    "no meta path": "import sys\nsys.meta_path.clear(); sys.path.clear()",
    "signals": "import signal\nfor n in range(1, 32):\n    try: signal.signal(n, signal.SIG_IGN)\n"
    "    except (OSError, ValueError): pass",
    "exit from a tracer": "import sys\ndef trace(frame, event, arg):\n"
    "    if 'stasis_agent' in frame.f_code.co_filename: raise SystemExit(1)\nsys.settrace(trace)",
    "blocked signals": "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])",
    "forgotten sources": "import linecache\nlinecache.clearcache()",
    "atexit": "import atexit, os\natexit.register(os.abort)",
}


class Survive(unittest.TestCase):
    def check(self, name, code):
        machine = Machine()
        try:
            machine.run(code)
            self.assertEqual(machine.value("1 + 1"), "2", name)
            error = machine.error("1 / 0")
            self.assertEqual(error["name"], "ZeroDivisionError", name)
            self.assertIn("line 1, in <module>", error["traceback"])
            self.assertNotIn("stasis_agent", error["traceback"])
            self.assertEqual(machine.error("x = (")["name"], "SyntaxError", name)
            machine.run("print('hello')")
            self.assertEqual(machine.stream("stdout"), "hello\n", name)
            machine.begin("while True: pass")
            while True:  # the instruction may not have begun at the first signal
                machine.interrupt()
                if machine.pump(0.05):
                    break
            self.assertEqual(machine.finish()["error"]["name"], "KeyboardInterrupt", name)
        finally:
            self.assertEqual(machine.close(), 0, name)

    def test_breakers(self):
        for name, code in BREAKERS.items():
            with self.subTest(name):
                self.check(name, code)


class Limits(OneMachine, unittest.TestCase):
    def test_the_users_recursion_limit_lasts(self):
        self.machine.run("import sys; sys.setrecursionlimit(300)")
        self.assertEqual(self.machine.value("sys.getrecursionlimit()"), "300")
        self.machine.run("sys.setrecursionlimit(1000)")

    def test_patches_of_builtins_last(self):
        self.machine.run("import builtins\nbuiltins.abs = lambda x: 'mine'")
        self.assertEqual(self.machine.value("abs(1)"), "'mine'")


class Exceptions(OneMachine, unittest.TestCase):
    def test_exceptions_that_fight_back(self):
        code = "class E(Exception):\n    def __getattribute__(self, name): raise SystemExit(name)\n"
        code += "    def __bool__(self): raise ValueError\n    __str__ = __repr__ = __len__ = __bool__\n"
        error = self.machine.error(code + "raise E")
        self.assertEqual(error["name"], "E")
        self.assertIn("raise E", error["traceback"])

    def test_a_message_without_end_can_be_interrupted(self):
        code = "import time\nclass S(Exception):\n    def __str__(self):\n        print('begun')\n"
        self.machine.begin(code + "        time.sleep(1000)\nraise S")
        self.machine.wait_output("begun\n")
        for _ in range(4):
            time.sleep(0.05)
            self.machine.interrupt()
        self.assertEqual(self.machine.finish()["error"]["name"], "S")

    def test_a_child_forked_in_a_repr(self):
        code = "import os\nclass F:\n    def __repr__(self):\n        self.pid = os.fork()\n"
        self.machine.run(code + "        return 'F'\nf = F()\nf")
        self.assertEqual(self.machine.value("os.waitpid(f.pid, 0)[1] != 0"), "True")


class Processes(OneMachine, unittest.TestCase):
    def test_a_forked_child_leaves_quietly(self):
        code = "import os, sys\npid = os.fork()\nif pid: status = os.waitpid(pid, 0)[1]\n"
        for tail, status in (("", 0), ("else: sys.exit(7)", 7), ("else: 1 / 0", 1)):
            self.machine.run(code + tail)
            said = self.machine.stream("stderr")
            self.assertEqual(self.machine.value("os.WEXITSTATUS(status)"), str(status))
        self.assertIn("ZeroDivisionError", said)
        self.assertEqual(self.machine.value("5"), "5")

    def test_a_child_that_outlives_its_instruction(self):
        code = "import os, time\npid = os.fork()\nif pid == 0: time.sleep(0.2)\npid > 0"
        self.assertEqual(self.machine.value(code), "True")
        self.assertEqual(self.machine.value("os.waitpid(pid, 0)[1]"), "0")

    def test_multiprocessing(self):
        self.machine.run("import multiprocessing as mp\ndef square(x): return x * x")
        code = "with mp.get_context('fork').Pool(2) as pool: r = pool.map(square, [1, 2, 3])\nr"
        self.assertEqual(self.machine.value(code), "[1, 4, 9]")
        code = "import math\nwith mp.get_context('spawn').Pool(1) as pool: r = pool.map(math.sqrt, [4])\nr"
        self.assertEqual(self.machine.value(code), "[2.0]")
        self.assertEqual(self.machine.stream("stderr"), "")

    def test_executors(self):
        code = "from concurrent.futures import ProcessPoolExecutor\ndef cube(x): return x ** 3\n"
        code += "with ProcessPoolExecutor(2) as pool: r = list(pool.map(cube, [1, 2]))\nr"
        self.assertEqual(self.machine.value(code), "[1, 8]")

    def test_subprocesses(self):
        code = "import subprocess, sys\nsubprocess.run([sys.executable, '-c', 'print(6)'])"
        self.machine.run(code)
        self.assertEqual(self.machine.stream("stdout"), "6\n")


class Await(OneMachine, unittest.TestCase):
    def test_top_level_await(self):
        self.machine.run("import asyncio")
        self.assertEqual(self.machine.value("await asyncio.sleep(0, 5)"), "5")
        code = "async def numbers():\n    for i in range(3): yield i\n"
        code += "[i async for i in numbers()]"
        self.assertEqual(self.machine.value(code), "[0, 1, 2]")
        code = "x = 0\nasync with asyncio.Lock():\n    x = 1\nx"
        self.assertEqual(self.machine.value(code), "1")

    def test_tasks_go_on_in_later_instructions(self):
        code = "import asyncio\ncount = 0\nasync def tick():\n    global count\n"
        code += "    while True:\n        count += 1\n        await asyncio.sleep(0.001)\n"
        self.machine.run(code + "task = asyncio.ensure_future(tick())\nawait asyncio.sleep(0)")
        before = int(self.machine.value("count"))
        self.machine.run("await asyncio.sleep(0.05)")
        self.assertGreater(int(self.machine.value("count")), before)
        self.assertEqual(self.machine.value("task.cancel()"), "True")
        self.machine.run("await asyncio.sleep(0)")
        self.assertEqual(self.machine.value("task.cancelled()"), "True")

    def test_asyncio_run(self):
        self.machine.run("import asyncio\nasync def main(): return 9")
        self.assertEqual(self.machine.value("asyncio.run(main())"), "9")
        self.assertEqual(self.machine.value("await main()"), "9")

    def test_errors(self):
        code = "import asyncio\nasync def fail():\n    await asyncio.sleep(0)\n    1 / 0\nawait fail()"
        error = self.machine.error(code)
        self.assertEqual(error["name"], "ZeroDivisionError")
        self.assertNotIn("run_until_complete", error["traceback"])
        self.assertEqual(self.machine.error("await asyncio.sleep(0); exit()")["name"], "SystemExit")
        self.assertEqual(self.machine.value("await asyncio.sleep(0, 3)"), "3")

    def test_a_closed_loop_is_replaced(self):
        self.machine.run("import asyncio\nloop = asyncio.get_running_loop()\nawait asyncio.sleep(0)")
        self.machine.run("await asyncio.sleep(0)\nloop = asyncio.get_running_loop()")
        self.machine.run("loop.close()")
        self.assertEqual(self.machine.value("await asyncio.sleep(0, 4)"), "4")
