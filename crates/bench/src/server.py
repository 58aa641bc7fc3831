# The program every measurement is made on: answers each line with a line.
import gc
import sys
import threading
import time

import matplotlib
import numpy
import pandas

matplotlib.use("Agg")
import matplotlib.pyplot


class Spinner:
    """Watches the clock from a thread of its own and remembers its longest gap.

    The main thread is blocked in read meanwhile and does not need the interpreter's lock. The
    first moments, in which the main thread still answers, do not count.
    """

    def start(self):
        self.stopped = False
        self.gap = 0
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        clock = time.perf_counter_ns
        quiet = clock() + 10_000_000
        while clock() < quiet:
            pass
        last = clock()
        while not self.stopped:
            now = clock()
            if now - last > self.gap:
                self.gap = now - last
            last = now

    def stop(self):
        # read first: taking the lock from the thread is itself a gap to it
        gap = self.gap
        self.stopped = True
        self.thread.join()
        return gap


def answer(line):
    try:
        try:
            return repr(eval(compile(line, "<line>", "eval"), scope))
        except SyntaxError:
            exec(line, scope)
            return "done"
    except BaseException as error:
        return "failed: " + repr(error)


scope = {"numpy": numpy, "pandas": pandas, "spinner": Spinner(), "x": 21, "log": []}
scope["frame"] = pandas.DataFrame({"a": numpy.arange(1000), "b": numpy.arange(1000) * 0.5})
gc.collect()
gc.freeze()
print("ready", flush=True)
for line in sys.stdin:
    print(answer(line.strip()), flush=True)
