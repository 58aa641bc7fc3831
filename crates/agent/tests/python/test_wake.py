"""Values that a wake renews, and values that it must not change."""

import subprocess
import sys
import unittest

from machine import AGENT, OneMachine

ONE, TWO = "11" * 32, "22" * 32


class Wake(OneMachine, unittest.TestCase):
    def test_environment(self):
        self.machine.wake(machine="blue-7", env={"A_KEY": "v", "TZ": "Asia/Tokyo"})
        code = "import os, stasis, time\nstasis.machine(), os.environ['A_KEY'], time.timezone"
        self.assertEqual(self.machine.value(code), "('blue-7', 'v', -32400)")
        self.machine.wake(env={"TZ": "UTC"})
        self.assertEqual(self.machine.value("time.timezone"), "0")

    def test_simulations_keep_their_course(self):
        self.machine.run("import random; random.seed(5); state = random.getstate()")
        changed = self.machine.wake(reseed=False, entropy=ONE)
        self.assertNotIn("random", changed)
        self.assertEqual(self.machine.value("random.getstate() == state"), "True")

    def test_simulations_are_reseeded_when_asked(self):
        self.machine.run("import random")
        values = []
        for entropy in (ONE, TWO, ONE):
            self.machine.run("random.seed(5)")
            self.assertIn("random", self.machine.wake(reseed=True, entropy=entropy))
            values.append(self.machine.value("random.random()"))
        self.assertNotEqual(values[0], values[1])
        self.assertEqual(values[0], values[2])

    def test_generators_of_programs(self):
        self.machine.run("import random; made = random.Random(5)")
        draws = []
        for entropy in (ONE, TWO):
            self.machine.run("made.seed(5)")
            self.assertIn("random generators", self.machine.wake(reseed=True, entropy=entropy))
            draws.append(self.machine.value("made.random()"))
        self.assertNotEqual(draws[0], draws[1])
        self.machine.run("made.seed(5); state = made.getstate()")
        self.machine.wake(reseed=False, entropy=ONE)
        self.assertEqual(self.machine.value("made.getstate() == state"), "True")

    def test_generators_of_numpy(self):
        if self.machine.value("import importlib.util as u\nu.find_spec('numpy') is None") == "True":
            self.skipTest("no numpy")
        self.machine.run("import numpy")
        draws = []
        for entropy in (ONE, TWO):
            self.machine.run("made = [numpy.random.default_rng(5) for _ in range(2)]")
            self.machine.wake(reseed=True, entropy=entropy)
            draws.append(self.machine.value("[one.random() for one in made]"))
        self.assertNotEqual(draws[0], draws[1])
        self.assertEqual(self.machine.value("made[0].random() != made[1].random()"), "True")

    def test_numpy(self):
        if self.machine.value("import importlib.util as u\nu.find_spec('numpy') is None") == "True":
            self.skipTest("no numpy")
        self.machine.run("import numpy; numpy.random.seed(5); a = numpy.random.get_state()[1]")
        self.machine.wake(reseed=False)
        self.assertEqual(self.machine.value("(numpy.random.get_state()[1] == a).all() and 1"), "1")
        values = []
        for entropy in (ONE, TWO):
            self.assertIn("numpy.random", self.machine.wake(reseed=True, entropy=entropy))
            values.append(self.machine.value("numpy.random.rand()"))
        self.assertNotEqual(values[0], values[1])

    def test_guards_are_always_fresh(self):
        self.machine.run("import ssl, tempfile, uuid; uuid.getnode(); tempfile.mktemp()")
        self.machine.run("uuid._last_timestamp = 5; names = tempfile._name_sequence")
        changed = self.machine.wake(reason="wake")
        self.assertEqual(
            changed, ["OpenSSL random generator", "uuid node and clock state", "tempfile names"]
        )
        code = "uuid._node, uuid._last_timestamp, tempfile._name_sequence"
        self.assertEqual(self.machine.value(code), "(None, None, None)")

    def test_a_wake_is_always_answered(self):
        self.machine.run("import random\nkeep, random.seed = random.seed, None")
        changed = self.machine.wake(reseed=True, env={"": "x", "GOOD": "1"})
        self.assertNotIn("random", changed)
        self.assertIn("random failed", self.machine.stream("stderr"))
        self.assertEqual(self.machine.value("random.seed = keep\nimport os\nos.environ['GOOD']"), "'1'")
        self.assertEqual(self.machine.wake(entropy="not hex"), [])

    def test_hooks(self):
        code = "import stasis\nseen = []\n@stasis.on_wake\ndef bad(reason, changed): 1 / 0\n"
        code += "@stasis.on_wake\ndef good(reason, changed): seen.append((reason, type(changed)))"
        self.machine.run(code)
        self.machine.wake(reason="rollback")
        self.assertIn("on_wake: bad failed: ZeroDivisionError", self.machine.stream("stderr"))
        self.assertEqual(self.machine.value("seen"), "[('rollback', <class 'list'>)]")
        self.machine.run("stasis._hooks.clear()")
        self.assertEqual(self.machine.error("stasis.on_wake(5)")["name"], "TypeError")


# One process with a started generator, copied twice by the bare system call into process
# namespaces in which both have the id it had: what restoring one image twice does to OpenSSL.
TWINS = """
import ctypes, os, ssl, sys
sys.path.insert(0, sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
NEW_PID, CLONE, SIGCHLD = 0x20000000, {"x86_64": 56, "aarch64": 220}[os.uname().machine], 17

def copy(work):
    pid = libc.syscall(CLONE, NEW_PID | SIGCHLD, 0, 0, 0, 0)
    if pid < 0:
        os._exit(77)
    if pid == 0:
        work()
        os._exit(0)
    status = os.waitpid(pid, 0)[1]
    if status:
        os._exit(os.WEXITSTATUS(status) or 1)

def twin(entropy):
    if os.getpid() != 1:
        os._exit(3)
    if entropy:
        waker.openssl(entropy)
    os.write(1, (ssl.RAND_bytes(16).hex() + "\\n").encode())

def source():
    ssl.RAND_bytes(16)
    for entropy in (None, None, b"one" * 11, b"two" * 11):
        copy(lambda: twin(entropy))

from stasis_agent.wake import Waker
waker = Waker(None)
copy(source)
"""


class OpenSSL(unittest.TestCase):
    def test_twins_with_one_process_id(self):
        run = subprocess.run(
            [sys.executable, "-B", "-c", TWINS, AGENT], stdout=subprocess.PIPE, timeout=300
        )
        if run.returncode == 77:
            self.skipTest("process namespaces are not allowed here")
        self.assertEqual(run.returncode, 0)
        same, again, one, two = run.stdout.decode().split()
        self.assertEqual(same, again, "without a wake the twins agree: the danger is real")
        self.assertEqual(len({same, one, two}), 3)
