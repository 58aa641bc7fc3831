"""Proves: a thread pool survives with running, waiting and queued work, and the locks between its threads.
How: workers wait at an event, at a condition and in timed waits while more futures are queued than there are
workers; a check lets them all through, compares results and order, and sets up the next round."""

import concurrent.futures
import queue
import threading
import time

import program

steps = 0
pool = concurrent.futures.ThreadPoolExecutor(max_workers=3)
results = queue.Queue()


def wait_at(gate, n):
    local.n = n
    if not gate.wait(3600 if n % 2 else None):
        raise TimeoutError
    results.put(n)
    return local.n * n


local = threading.local()


def sleeper():
    """Timed waits all the time: each must last about as long as asked, and none may fail."""
    while True:
        start = time.monotonic()
        time.sleep(0.05)
        program.expect("sleep lasted", time.monotonic() - start >= 0.049)
        try:
            queue.Queue().get(timeout=0.02)
        except queue.Empty:
            counts["timeouts"] += 1


counts = {"timeouts": 0}


def submit():
    global gate, futures
    gate = threading.Event()
    futures = [pool.submit(wait_at, gate, n) for n in range(10)]
    program.within_patience(lambda: sum(future.running() for future in futures) == 3)
    time.sleep(0.02)


def release():
    program.expect("futures done before their time", [future.done() for future in futures], [False] * 10)
    program.expect("futures running", sum(future.running() for future in futures), 3)
    gate.set()
    program.expect("results", [future.result(program.PATIENCE) for future in futures], [n * n for n in range(10)])
    program.expect("each once", sorted(results.get(timeout=program.PATIENCE) for _ in range(10)), list(range(10)))
    program.expect("and no more", results.empty())
    submit()


def setup():
    threading.Thread(target=sleeper, daemon=True).start()
    submit()


def check():
    before = counts["timeouts"]
    program.expect("timed waits go on", program.within_patience(lambda: counts["timeouts"] > before))
    release()


def step():
    global steps
    steps += 1
    release()


program.run(setup, check, step, lambda: steps)
