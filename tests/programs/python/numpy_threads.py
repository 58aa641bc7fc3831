"""Proves: numerical work in mid-flight on several threads goes on to the right result.
How: Python threads multiply matrices (OpenBLAS, which has threads of its own) and run element-wise loops
without pause, and compare every result with the first. The numbers are small integers in floats, so that the
order of adding cannot matter."""

import threading

import program

np = program.require("numpy")
steps = 0
rounds = [0, 0, 0]


def inputs(seed):
    rng = np.random.default_rng(seed)
    return rng.integers(-500, 500, (320, 320)).astype(np.float64), rng.integers(-500, 500, (320, 320)).astype(
        np.float64
    )


def results(a, b):
    product = a @ b
    solved = np.cumsum(product, axis=1)
    return program.sha(
        product.tobytes(), solved.tobytes(), np.sort(product, axis=None).tobytes(), (a * 3 + b).tobytes()
    )


current = None


def work(index):
    while True:
        a, b, expected = current
        got = results(a, b)
        program.expect(f"result of thread {index}", got, expected)
        rounds[index] += 1


def prepare():
    global current
    a, b = inputs(steps)
    # The reference is computed without BLAS: exact in integers.
    product = (a.astype(np.int64) @ b.astype(np.int64)).astype(np.float64)
    expected = program.sha(
        product.tobytes(),
        np.cumsum(product, axis=1).tobytes(),
        np.sort(product, axis=None).tobytes(),
        (a * 3 + b).tobytes(),
    )
    current = (a, b, expected)


def setup():
    prepare()
    for index in range(len(rounds)):
        threading.Thread(target=work, args=(index,), daemon=True).start()


def check():
    before = list(rounds)
    alive = program.within_patience(lambda: all(now > then for now, then in zip(rounds, before)))
    program.expect("every thread goes on", alive)
    program.expect("result of the main thread", results(current[0], current[1]), current[2])


def step():
    global steps
    steps += 1
    prepare()


program.run(setup, check, step, lambda: (steps, current[2]))
