"""Proves: random streams continue exactly where they were.
How: generators of several kinds are advanced; a check draws from each, compares with a fresh generator advanced
as far, and puts the state back, so that looking does not move the stream."""

import copy
import random

import program

np = program.require("numpy")
steps = 0
KINDS = ["PCG64", "MT19937", "Philox", "SFC64"]


def fresh():
    streams = {"python": random.Random(42)}
    for kind in KINDS:
        streams[kind] = np.random.Generator(getattr(np.random, kind)(7))
    return streams


def advance(streams):
    streams["python"].random(), streams["python"].gauss(0, 1)  # gauss keeps a second value back
    for kind in KINDS:
        (
            streams[kind].standard_normal(100),
            streams[kind].integers(0, 10, 3, dtype=np.int32),
        )  # int32 keeps half a word back


def draw(streams):
    streams = copy.deepcopy(streams)
    result = {
        "python": (
            streams["python"].gauss(0, 1),
            streams["python"].getrandbits(200),
            streams["python"].sample(range(100), 5),
        )
    }
    for kind in KINDS:
        result[kind] = (
            streams[kind].integers(0, 1 << 30, 5, dtype=np.int32).tolist(),
            streams[kind].random(5).tolist(),
        )
    return result


def module_level():
    """The module's own generators, which programs use without thinking."""
    state, numpy_state = random.getstate(), np.random.get_state()
    drawn = (random.random(), random.randint(0, 10**9), np.random.rand(3).tolist())
    random.setstate(state)
    np.random.set_state(numpy_state)
    return drawn


def setup():
    global streams, module_expected
    streams = fresh()
    random.seed(9)
    np.random.seed(9)
    advance(streams)
    module_expected = module_level()


def check():
    expected = fresh()
    for _ in range(steps + 1):
        advance(expected)
    for name, value in draw(expected).items():
        program.expect(f"stream {name}", draw(streams)[name], value)
    program.expect("module-level streams", module_level(), module_expected)


def step():
    global steps
    steps += 1
    advance(streams)


program.run(setup, check, step, lambda: draw(streams))
