"""Proves: a pool of worker processes survives: processes, the pipes and semaphores between them, shared values.
How: a fork-context Pool idles; a check maps over it, compares results, and looks at the workers' pids and at
memory each has kept since the start. A worker process of its own waits on a queue; a shared Value is counted up
under its lock by all."""

import multiprocessing
import os

import program

context = multiprocessing.get_context("fork")
steps = 0
kept = {}


def initialise(value):
    global shared
    shared = value
    kept["table"] = [os.getpid() * i for i in range(10000)]


def work(n):
    ok = kept["table"][-1] == os.getpid() * 9999
    with shared.get_lock():
        shared.value += 1
    return n * n if ok else -1, os.getpid()


def doubler(questions, answers):
    for n in iter(questions.get, None):
        answers.put(n * 2)


def setup():
    global pool, value, questions, answers, process, counted
    try:
        value = context.Value("q", 0)
    except OSError as error:
        program.skip(f"no semaphores here: {error}")
    questions, answers = context.Queue(), context.Queue()
    process = context.Process(target=doubler, args=(questions, answers), daemon=True)
    process.start()
    pool = context.Pool(3, initialise, (value,))
    counted = 0
    go_round()


def go_round():
    global counted
    got = pool.map_async(work, range(30), chunksize=1).get(program.PATIENCE)
    counted += 30
    program.expect("results", [square for square, _ in got], [n * n for n in range(30)])
    program.expect("workers are the pool's own", {pid for _, pid in got} <= {worker.pid for worker in pool._pool})
    program.expect("shared value", value.value, counted)
    questions.put(21)
    program.expect("queue there and back", answers.get(timeout=program.PATIENCE), 42)


def check():
    program.expect("workers alive", [worker.is_alive() for worker in pool._pool] + [process.is_alive()], [True] * 4)
    go_round()


def step():
    global steps
    steps += 1
    go_round()


def finish():
    questions.put(None)
    pool.terminate()
    process.join(program.PATIENCE)


program.run(setup, check, step, lambda: steps, finish)
