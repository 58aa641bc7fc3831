"""Interrupts: they end instructions, never the agent, and no answer is lost."""

import os
import signal
import threading
import time
import unittest

from machine import LIMIT, OneMachine


class Interrupt(OneMachine, unittest.TestCase):
    def interrupted(self, code, ready=lambda: True):
        self.machine.begin("print('begun')\n" + code)
        self.machine.wait_output("begun\n")
        time.sleep(0.05)  # until it waits, mostly; it is interrupted wherever it is
        end = time.monotonic() + LIMIT
        while not ready():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        self.machine.interrupt()
        report = self.machine.finish()
        self.assertEqual(report["error"]["name"], "KeyboardInterrupt", report)
        self.assertEqual(report["how"], "interrupted", report)
        self.assertNotIn("stasis_agent", report["error"]["traceback"])
        self.assertEqual(self.machine.value("'alive'"), "'alive'")
        return report

    def test_everything_that_waits(self):
        self.machine.run("import asyncio, subprocess, threading, time, queue")
        for code in (
            "time.sleep(100)",
            "while True: pass",
            "await asyncio.sleep(100)",
            "asyncio.run(asyncio.sleep(100))",
            "subprocess.run(['sleep', '100'])",
            "threading.Event().wait()",
            "queue.Queue().get()",
            "async def spin():\n    while True: pass\nawait spin()",
        ):
            self.interrupted(code)

    def test_commands_are_killed(self):
        path = self.machine.home.name + "/pid"

        def read():
            try:
                with open(path) as file:
                    return file.read()
            except FileNotFoundError:
                return ""

        before = time.monotonic()
        self.interrupted("!echo $$ > pid; sleep 1000", lambda: read().endswith("\n"))
        self.assertLess(time.monotonic() - before, 2 * LIMIT)
        pid = int(read())
        with self.assertRaises(ProcessLookupError):
            os.kill(pid, 0)

    def test_a_swallowed_interrupt_is_one_per_signal(self):
        code = "import time\ntry:\n    print('begun')\n    time.sleep(100)\n"
        code += "except KeyboardInterrupt:\n    print('caught')\n    time.sleep(100)"
        self.machine.begin(code)
        self.machine.wait_output("begun\n")
        time.sleep(0.05)
        self.machine.interrupt()
        self.machine.wait_output("caught\n")
        time.sleep(0.05)
        self.machine.interrupt()
        self.assertEqual(self.machine.finish()["error"]["name"], "KeyboardInterrupt")

    def test_an_interrupted_print_prints_once(self):
        code = "print('begun')\nfor i in range(10**9): print(i)"
        self.machine.begin(code)
        self.machine.wait_output("1000\n")
        self.machine.interrupt()
        self.machine.finish()
        lines = self.machine.stream("stdout").split("\n")[1:-1]
        self.assertEqual(lines, [str(number) for number in range(len(lines))])

    def test_idle_signals_are_ignored(self):
        for _ in range(20):
            self.machine.interrupt()
        time.sleep(0.05)
        self.assertEqual(self.machine.value("1"), "1")

    def test_user_handlers_last_one_instruction(self):
        code = "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_DFL)"
        self.machine.run(code)
        self.interrupted("time.sleep(100)")
        code = "def mine(*_): print('mine')\nsignal.signal(signal.SIGINT, mine)\n"
        code += "signal.raise_signal(signal.SIGINT)\ntime.sleep(0)"
        self.assertNotIn("error", self.machine.run(code))
        self.assertIn("mine\n", self.machine.stream("stdout"))

    def test_a_slow_repr_can_be_interrupted(self):
        code = "import time\nclass Slow:\n    def __repr__(self):\n        print('begun2')\n"
        self.machine.begin(code + "        time.sleep(100)\nSlow()")
        self.machine.wait_output("begun2\n")
        time.sleep(0.05)
        self.machine.interrupt()
        self.assertEqual(self.machine.finish()["error"]["name"], "KeyboardInterrupt")

    def test_a_storm_loses_no_answer(self):
        self.machine.run("import asyncio, time\nclass H:\n    def _repr_html_(self): return '<b>'\nh = H()")
        stop = threading.Event()

        def storm():
            while not stop.is_set():
                os.kill(self.machine.process.pid, signal.SIGINT)
                time.sleep(0.0002)

        thread = threading.Thread(target=storm)
        thread.start()
        names = set()
        try:
            end, patience = time.monotonic() + 3, time.monotonic() + LIMIT
            codes = ["1 + 1", "display(h); h", "print('x')", "sum(range(10000))", "def f(: x"]
            codes += ["time.sleep(0.001)", "await asyncio.sleep(0.0005)", "!true"]
            while time.monotonic() < end or (
                not {"KeyboardInterrupt", None} <= names and time.monotonic() < patience
            ):
                for code in codes:
                    report = self.machine.run(code)
                    names.add(report.get("error", {}).get("name"))
        finally:
            stop.set()
            thread.join()
        self.assertIn("KeyboardInterrupt", names)
        self.assertIn(None, names)
        self.assertEqual(self.machine.value("2 + 2"), "4")
