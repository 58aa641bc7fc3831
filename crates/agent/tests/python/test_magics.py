"""Notebook lines: commands, magics, pip."""

import os
import sys
import unittest
import zipfile

from machine import AGENT, OneMachine

sys.path.insert(0, AGENT)
from stasis_agent.transform import transform  # noqa: E402


def wheel(directory):
    """Writes a package that pip can install without an index."""
    info = "fresh_thing-1.dist-info/"
    files = {
        "fresh_thing.py": "answer = 42",
        info + "METADATA": "Metadata-Version: 2.1\nName: fresh-thing\nVersion: 1\n",
        info + "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(name + ",,\n" for name in [*files, info + "RECORD"])
    with zipfile.ZipFile(directory + "/fresh_thing-1-py3-none-any.whl", "w") as file:
        for name, text in {**files, info + "RECORD": record}.items():
            file.writestr(name, text)


class Transform(unittest.TestCase):
    def test_left_alone(self):
        for source in (
            "x = '''\n!ls\n%cd\n'''",
            "x = (10\n%3)",
            "x = [1,\n  !ls\n]",
            "x = 1 \\\n% 2",
            "f('a\\'(',\n% 3)",
            "a != b\nx %= 2",
            "pip = 1",
        ):
            self.assertIsNone(transform(source), source)

    def test_lines(self):
        for source, expected in (
            ("!ls -l", "__stasis__.shell('ls -l')"),
            ("if x:\n    !ls\n    y", "if x:\n    __stasis__.shell('ls')\n    y"),
            ("x = !ls", "x = __stasis__.capture('ls')"),
            ("%cd /tmp", "__stasis__.line('cd', '/tmp')"),
            ("x = %pwd", "x = __stasis__.line('pwd', '')"),
            ("pip install a", "__stasis__.shell('pip install a')"),
            ("!a \\\n  b\nc", "__stasis__.shell('a   b')\n\nc"),
            ("'(' # (\n!ls", "'(' # (\n__stasis__.shell('ls')"),
            ("%%bash -x\na\nb", "__stasis__.cell('bash', '-x', 'a\\nb')"),
        ):
            self.assertEqual(transform(source), expected)


class Magics(OneMachine, unittest.TestCase):
    def test_commands(self):
        self.machine.run("!echo out; echo err >&2; exit 3")
        self.assertEqual(self.machine.stream("stdout"), "out\n")
        self.assertEqual(self.machine.stream("stderr"), "err\n")
        self.assertEqual(self.machine.value("_exit_code"), "3")
        self.assertEqual(self.machine.value("x = !printf 'a\\nb'\nx"), "['a', 'b']")
        self.assertEqual(self.machine.value("_exit_code"), "0")

    def test_a_machine_without_a_network_says_so(self):
        words = "this machine has no network"
        error = self.machine.error("import socket; socket.getaddrinfo('a.invalid', 80)")
        self.assertEqual(error["name"], "gaierror")
        self.assertIn(words, error["message"])
        self.assertIn(words, error["traceback"].splitlines()[-1])
        error = self.machine.error(
            "try: socket.getaddrinfo('a.invalid', 80)\nexcept OSError: raise ValueError('wrapped')"
        )
        self.assertIn(words, error["message"])
        self.assertNotIn(words, self.machine.error("1 / 0")["message"])
        self.machine.run("!pip install --index-url http://a.invalid/simple no-such-thing")
        self.assertIn(words, self.machine.stream("stderr"))
        self.assertNotIn("Retrying", self.machine.stream("stderr"))

    def test_commands_in_blocks(self):
        self.machine.run("for i in range(2):\n    !echo {i} ${HOME} '{print $1}'")
        self.assertEqual(self.machine.stream("stdout").count("{print $1}"), 2)
        self.assertTrue(self.machine.stream("stdout").startswith("0 /"))

    def test_line_numbers_stay(self):
        traceback = self.machine.error("!true \\\n  x\n\n1 / 0")["traceback"]
        self.assertIn("line 4", traceback)
        self.assertIn("    1 / 0\n", traceback)

    def test_strings_are_untouched(self):
        self.assertEqual(self.machine.value("x = '''\n!ls\n'''\n!true\nx"), "'\\n!ls\\n'")

    def test_cd_env_pwd(self):
        self.machine.run("%cd /tmp")
        self.assertEqual(self.machine.stream("stdout"), os.path.realpath("/tmp") + "\n")
        self.assertEqual(self.machine.value("%pwd"), repr(os.path.realpath("/tmp")))
        self.machine.run("%cd -")
        self.machine.run("%env COLOUR=red")
        self.assertEqual(self.machine.value("import os\nos.environ['COLOUR']"), "'red'")
        self.assertEqual(self.machine.value("%env COLOUR"), "'red'")
        self.assertEqual(self.machine.error("%cd /nowhere/at/all")["name"], "FileNotFoundError")

    def test_time(self):
        self.assertEqual(self.machine.value("%time 40 + 2"), "42")
        self.assertIn("wall time", self.machine.stream("stdout"))
        self.machine.run("%%time\ny = 7\ny")
        self.assertEqual(self.machine.value("y"), "7")
        self.machine.run("%timeit -n 5 -r 2 sum([1, 2])")
        self.assertIn("2 runs, 5 loops each", self.machine.stream("stdout"))

    def test_scripts(self):
        self.machine.run("%%bash\nfor i in 1 2; do\n  echo $i\ndone")
        self.assertEqual(self.machine.stream("stdout"), "1\n2\n")
        self.machine.run("%%sh\necho '!x'")
        self.assertEqual(self.machine.stream("stdout"), "!x\n")

    def test_writefile(self):
        self.machine.run("%%writefile a.txt\nline 1\n%line 2\n")
        self.machine.run("%%writefile -a a.txt\nline 3")
        self.assertEqual(
            self.machine.value("open('a.txt').read()"), "'line 1\\n%line 2\\nline 3'"
        )

    def test_unknown(self):
        for code in ("%load_ext autoreload", "%%html\n<b>", "%nonsense"):
            error = self.machine.error(code)
            self.assertEqual(error["name"], "UnknownMagic")
            self.assertIn("is not known here", error["message"])
        self.assertNotIn("error", self.machine.run("%matplotlib inline\nz = 1"))

    def test_pip(self):
        self.assertNotIn("error", self.machine.run("%pip --version"))
        self.assertEqual(self.machine.value("_exit_code"), "0", self.machine.output)

    def test_installed_packages_can_be_imported(self):
        wheel(self.machine.home.name)
        code = "import sys; sys.path.append('lib')\ntry: import fresh_thing\nexcept ImportError: pass"
        self.machine.run(code)
        self.machine.run("!pip install --no-index -q --target lib ./fresh_thing-1-py3-none-any.whl")
        self.assertEqual(self.machine.value("_exit_code"), "0", self.machine.output)
        self.assertEqual(self.machine.value("import fresh_thing\nfresh_thing.answer"), "42")
