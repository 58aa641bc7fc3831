"""The agent starts, answers, and leaves."""

import unittest

from machine import Machine


class Start(unittest.TestCase):
    def test_ready_then_quiet_exit(self):
        machine = Machine()
        self.assertEqual(machine.ready["language"], "python")
        self.assertEqual(machine.ready["generation"], 1)
        self.assertEqual(machine.value("6 * 7"), "42")
        self.assertEqual(machine.close(), 0)
        self.assertEqual(machine.output, [])
