"""`%time` and `%timeit`: how long a piece of the session's code takes."""

import sys

from .own import __builtins__
from re import compile as pattern
from time import perf_counter, process_time
from timeit import Timer

_OPTION = pattern(r"\s*-([nr])\s*(\d+)\s")


def once(session, code):
    """Runs code as part of the session, prints its duration and returns its value."""
    process, wall = process_time(), perf_counter()
    try:
        return session.evaluate(code, "<timed>")
    finally:
        process, wall = process_time() - process, perf_counter() - wall
        print("CPU time: %s, wall time: %s" % (words(process), words(wall)), file=sys.stdout)


def often(session, code):
    """Runs code repeatedly, and prints its duration."""
    number, repeat, code = options(code)
    run = Timer(code, globals=session.scope).timeit
    number = number or enough(run)
    times = [run(number) / number for _ in range(repeat)]
    mean = sum(times) / repeat
    spread = (sum((one - mean) ** 2 for one in times) / repeat) ** 0.5
    print(
        "%s ± %s per loop (mean ± std. dev. of %d runs, %d loops each)"
        % (words(mean), words(spread), repeat, number),
        file=sys.stdout,
    )


def options(code):
    """The options before the code: numbers of loops and of runs."""
    found = {"n": 0, "r": 7}
    option = _OPTION.match(code)
    while option:
        found[option.group(1)] = max(1, int(option.group(2)))
        code = code[option.end() :]
        option = _OPTION.match(code)
    return found["n"], found["r"], code.strip()


def enough(run):
    """A number of loops that takes a fifth of a second."""
    number = 1
    while run(number) < 0.2 and number < 10**9:
        number *= 10
    return max(1, number // 10)


def words(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return "%.3g %s" % (seconds / size, unit)
    return "%.3g ns" % (seconds / 1e-9)
