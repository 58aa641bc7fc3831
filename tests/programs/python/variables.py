"""Proves: Python objects survive: containers, big numbers, half-run generators, closures, classes, open files,
contexts.
How: each is built from `steps`; a check builds the same again from scratch and compares, and advances copies
where looking would change things."""

import collections
import contextvars
import ctypes
import itertools
import threading
import weakref

import program

steps = 0


class Point:
    made = 0
    __slots__ = ("x", "y", "__weakref__")

    def __init__(self, x, y):
        Point.made += 1
        self.x, self.y = x, y


def squares():
    """A generator with state of its own: locals, a loop, a try block it is in the middle of."""
    total = 0
    try:
        for n in itertools.count():
            total += n * n
            yield n, total
    finally:
        state["closed"] = True


def counter():
    count = 0

    def add(by):
        nonlocal count
        count += by
        return count

    return add


state = {"closed": False}
context = contextvars.ContextVar("context", default="none")
local = threading.local()


def containers(n):
    return {
        "list": list(range(n)),
        "dict": {f"key {i}": i * 1.5 for i in range(100 + n)},
        "set": set(range(n % 50)),
        "big": 7 ** (1000 + n),
        "bytes": bytes(range(256)) * 10,
        "text": "snø " * n,
        "tuple": (1, (2, (3, n))),
        "deque": collections.deque(range(n), maxlen=50),
        "complex": complex(n, -n),
        "none": None,
    }


def apply():
    state["containers"] = containers(50 + steps)
    state["array"][:8] = steps.to_bytes(8, "little")
    state["file"].write(f"line {steps}\n")
    state["point"].x = steps
    local.value = ("local", steps)
    context.set(f"context {steps}")
    state["buffer"][steps % 100] = steps


def setup():
    state.update(
        generator=squares(), add=counter(), array=bytearray(1 << 20), point=Point(0, 2), file=open("lines", "w+")
    )
    state["view"], state["weak"] = memoryview(state["array"]), weakref.ref(state["point"])
    state["buffer"] = (ctypes.c_uint64 * 100)()
    for _ in range(10):
        next(state["generator"])
    state["add"](5)
    apply()


def check():
    program.expect("containers", state["containers"], containers(50 + steps))
    program.expect("bytearray through its view", bytes(state["view"][:8]), steps.to_bytes(8, "little"))
    program.expect("rest of the bytearray", any(state["array"][8:]), False)
    program.expect("weak reference", state["weak"]() is state["point"])
    program.expect("slot", (state["point"].x, state["point"].y, Point.made), (steps, 2, 1))
    frame = state["generator"].gi_frame.f_locals
    program.expect(
        "generator's locals", (frame["n"], frame["total"]), (9 + steps, sum(n * n for n in range(10 + steps)))
    )
    program.expect("closure", state["add"](0), 5 + steps)
    program.expect("generator not closed", state["closed"], False)
    program.expect("thread-local", local.value, ("local", steps))
    program.expect("context variable", context.get(), f"context {steps}")
    program.expect("ctypes array", sum(state["buffer"]), sum(range(steps + 1)))
    file = state["file"]  # with text in its buffer that has not reached the file yet
    file.flush()
    place = file.tell()
    file.seek(0)
    program.expect("lines of the file", file.read().splitlines(), [f"line {n}" for n in range(steps + 1)])
    file.seek(place)


def step():
    global steps
    steps += 1
    next(state["generator"])
    state["add"](1)
    apply()


program.run(setup, check, step, lambda: (steps, state["containers"]["big"], sorted(state["containers"]["set"])))
