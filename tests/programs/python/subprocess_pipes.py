"""Proves: children started by exec survive with the pipes to them.
How: a `cat`, a second Python with variables of its own, and a `sort` that has read lines but written none; a
check talks to the first two; a step ends the third, compares what it sorted, and starts another. After that a
new command must run too."""

import json
import subprocess
import sys

import program

steps = 0
CHILD = """
import json, sys
total, seen = 0, []
for line in sys.stdin:
    total += int(line); seen.append(total)
    print(json.dumps([total, len(seen)]), flush=True)
"""


def start(*command):
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)


def ask(child, line):
    child.stdin.write(f"{line}\n")
    child.stdin.flush()
    return child.stdout.readline().strip()


def start_sort():
    global sorter
    sorter = start("sort", "-n")
    for n in (30, 4, 200, 1 + steps):
        sorter.stdin.write(f"{n}\n")
    sorter.stdin.flush()


def setup():
    global cat, python
    cat, python = start("cat"), start(sys.executable, "-c", CHILD)
    ask(cat, "warm"), ask(python, 0)
    start_sort()


asked = 1


def check():
    global asked
    program.expect("children alive", [child.poll() for child in (cat, python, sorter)], [None] * 3)
    program.expect("cat", ask(cat, "hello"), "hello")
    asked += 1
    program.expect("python", json.loads(ask(python, 0)), [steps * 10, asked])
    done = subprocess.run(
        ["sh", "-c", "echo out; echo err >&2; exit 4"], capture_output=True, text=True, timeout=program.PATIENCE * 2
    )
    program.expect("a new command", (done.stdout, done.stderr, done.returncode), ("out\n", "err\n", 4))


def step():
    global steps, asked
    output, _ = sorter.communicate(timeout=program.PATIENCE * 2)
    program.expect("sorted", [int(n) for n in output.split()], sorted([30, 4, 200, 1 + steps]))
    program.expect("sort's code", sorter.returncode, 0)
    steps += 1
    asked += 1
    ask(python, 10)
    start_sort()


def finish():
    for child in (cat, python, sorter):
        child.kill()
        child.wait()


program.run(setup, check, step, lambda: steps, finish)
