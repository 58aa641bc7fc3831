"""Preparation of memory before it becomes a template."""

import unittest

from machine import Machine

# Mappings of libraries that could be one with their neighbour.
APART = """
import sys
sys.path.insert(0, {agent!r})
from stasis_agent.compact import pieces
found = pieces()
apart = [one.path for one, next in zip(found, found[1:])
         if one.goes_on(next) and {{one.rights, next.rights}} == {{"r--p", "r-xp"}}]
len(apart)
"""
RESIDENT = "next(int(l.split()[1]) for l in open('/proc/self/status') if l.startswith('VmRSS'))"
# Objects and other mappings by turns, as when modules with libraries are imported.
BY_TURNS = """
import mmap
many, between = [], []
for n in range(24):
    many += [[str(n)] for _ in range(10_000)]
    between.append(mmap.mmap(-1, 1 << 20))
len(many)
"""
# Arenas that lie alone.
ALONE = """
sizes = []
for line in open('/proc/self/maps'):
    start, end = (int(one, 16) for one in line.split()[0].split('-'))
    if len(line.split()) == 5:
        sizes.append(end - start)
len([size for size in sizes if 1 << 20 <= size < 2 << 20])
"""


class Freeze(unittest.TestCase):
    def setUp(self):
        self.machine = Machine()

    def tearDown(self):
        self.machine.close()

    def freeze(self):
        self.machine.order(op="freeze")
        self.machine.expect("frozen")

    def test_code_and_what_it_reads_are_one_mapping(self):
        agent = self.machine.value("__import__('stasis').__file__.rpartition('/')[0]")
        code = APART.format(agent=agent.strip("'"))
        self.assertGreater(int(self.machine.value("import json, math, ssl\n" + code)), 3)
        self.freeze()
        self.assertEqual(self.machine.value(code), "0")
        self.assertEqual(self.machine.value("math.sqrt(4), json.dumps([ssl.OPENSSL_VERSION[:7]])"),
                         "(2.0, '[\"OpenSSL\"]')")

    def test_objects_lie_together_and_what_they_did_not_need_is_given_back(self):
        self.assertEqual(self.machine.value(BY_TURNS), "240000")
        held = int(self.machine.value(RESIDENT))
        self.freeze()
        self.assertLess(int(self.machine.value(RESIDENT)), held - (64 << 10))
        self.assertLess(int(self.machine.value(ALONE)), 10)
        self.assertEqual(self.machine.value("many[-1], len(many)"), "(['23'], 240000)")
