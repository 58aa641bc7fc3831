"""Standard output and error: order, streaming, and what user code does to them."""

import unittest

from machine import OneMachine


class Output(OneMachine, unittest.TestCase):
    def test_order_between_streams(self):
        code = "import sys\nfor i in range(50):\n"
        code += "    print('out', i)\n    print('err', i, file=sys.stderr)"
        self.machine.run(code)
        text = b"".join(data for _, data in self.machine.output).decode().split("\n")
        expected = [line for i in range(50) for line in ("out %d" % i, "err %d" % i)]
        self.assertEqual(text[:-1], expected)

    def test_order_with_partial_lines_and_commands(self):
        code = "import sys\nprint('a', end='')\nprint('b', end='', file=sys.stderr)\n"
        code += "!echo c; echo d >&2\nprint('e', file=sys.stderr)\nprint('f')"
        self.machine.run(code)
        text = b"".join(data for _, data in self.machine.output).decode()
        self.assertEqual(text.replace("c\nd\n", "d\nc\n"), "abd\nc\ne\nf\n")

    def test_order_with_displays(self):
        self.machine.run("for i in range(5):\n    print(i)\n    display(i)")
        kinds = [kind for kind, _ in self.machine.output]
        self.assertEqual(kinds, ["stdout", "display"] * 5)

    def test_lines_stream_while_the_instruction_runs(self):
        code = "import os, time\nprint('first')\nwhile not os.path.exists('go'): time.sleep(0.01)"
        self.machine.begin(code)
        self.machine.wait_output("first\n")
        open(self.machine.home.name + "/go", "w").close()
        self.assertNotIn("error", self.machine.finish())

    def test_pieces_of_lines_do_not_wait_for_ever(self):
        code = "import time\nfor c in 'abcd':\n    print(c, end='')\n    time.sleep(0.1)\n"
        code += "import os\nos.write(1, b'|')"
        self.machine.run(code)
        self.assertEqual(self.machine.stream("stdout"), "abcd|")

    def test_real_text_files(self):
        code = "import sys\nsys.stdout.buffer.write(b'raw\\n')\nsys.stdout.flush()\n"
        code += "(sys.stdout.fileno(), sys.stderr.fileno(), sys.stdout.encoding, sys.stdout.name,"
        code += " sys.stdout.isatty(), sys.stdout.mode, sys.stdout.errors)"
        value = self.machine.value(code)
        self.assertEqual(value, "(1, 2, 'utf-8', '<stdout>', False, 'w', 'backslashreplace')")
        self.assertEqual(self.machine.stream("stdout"), "raw\n")
        self.machine.run("print('\\udc80 é')")
        self.assertEqual(self.machine.stream("stdout"), "\\udc80 é\n")

    def test_c_output_is_flushed(self):
        self.machine.run("import ctypes\nctypes.CDLL(None).printf(b'from c')")
        self.assertEqual(self.machine.stream("stdout"), "from c")

    def test_much_output(self):
        self.machine.run("print('x' * 3_000_000)")
        self.assertEqual(len(self.machine.stream("stdout")), 3_000_001)

    def test_streams_come_back(self):
        for code in (
            "import sys; sys.stdout.close(); sys.stderr.close()",
            "import os; os.close(1); os.close(2)",
            "import io, sys; sys.stdout = io.StringIO(); sys.stderr = None",
            "import sys; sys.stdout.detach()",
            "import os; os.dup2(os.open('/dev/null', os.O_WRONLY), 1); os.dup2(1, 2)",
            "import os; os.set_blocking(1, False)",
            "import sys; del sys.stdout, sys.stderr",
        ):
            self.machine.run(code)
            report = self.machine.run("print('out')\nimport sys\nprint('err', file=sys.stderr)")
            self.assertNotIn("error", report, code)
            self.assertEqual(self.machine.stream("stdout"), "out\n", code)
            self.assertEqual(self.machine.stream("stderr"), "err\n", code)

    def test_non_blocking_pipe_loses_nothing(self):
        self.machine.run("import os; os.set_blocking(1, False)\nprint('x' * 1_000_000)")
        self.assertEqual(len(self.machine.stream("stdout")), 1_000_001)

    def test_descriptor_three_may_be_lost(self):
        self.assertEqual(self.machine.value("import os; os.close(3)\n5"), "5")
        self.assertEqual(self.machine.value("f = open('/dev/null'); f.fileno()"), "3")
        self.assertEqual(self.machine.value("6"), "6")

    def test_threads_print_at_any_time(self):
        code = "import threading, time\nstop = False\ndef talk():\n    while not stop:\n"
        code += "        print('tick', flush=True); time.sleep(0.001)\n"
        code += "t = threading.Thread(target=talk, daemon=True); t.start()"
        self.machine.run(code)
        for number in range(20):
            self.assertEqual(self.machine.value("%d" % number), str(number))
        self.machine.run("stop = True; t.join()")
