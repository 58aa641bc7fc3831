"""Runs one module of CPython's own tests and says how each test went, one line each, on descriptor 3.

    regrtest.py test.test_int

    begin ID                    a test begins
    ok|skip|fail ID             and ends; what failed is on standard error
    missing                     this Python has no such module
    done                        all have

A line may come twice: whoever captures a program and goes on with a copy of it hears again what the source said in
between. The last one counts.
"""

import faulthandler
import importlib.util
import os
import signal
import sys
import tempfile
import unittest

RESULTS = 3


def say(*words):
    line = " ".join(words).replace("\n", " ")[:500] + "\n"
    os.write(RESULTS, line.encode(errors="replace"))


def name_of(test):
    """A test's id; a failed fixture of a class or module is one too."""
    return test.id().replace(" ", "_")


class Result(unittest.TestResult):
    """Says it as it happens: a module may hang, or be ended."""

    def __init__(self):
        super().__init__()
        self.bad = False

    def startTest(self, test):
        super().startTest(test)
        self.bad = False
        say("begin", name_of(test))

    def complain(self, test, error):
        self.bad = True
        print(f"{test.id()}:\n{self._exc_info_to_string(error, test)}", file=sys.stderr, flush=True)
        say("fail", name_of(test))

    def addSuccess(self, test):
        if not self.bad:
            say("ok", name_of(test))

    def addError(self, test, err):
        self.complain(test, err)

    addFailure = addError

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.complain(test, err)

    def addSkip(self, test, reason):
        if not self.bad:
            say("skip", name_of(test))

    def addExpectedFailure(self, test, err):
        say("ok", name_of(test))

    def addUnexpectedSuccess(self, test):
        say("fail", name_of(test))


def prepare():
    """What `python -m test` does for its tests, as far as they notice."""
    from test import support

    os.set_inheritable(RESULTS, False)
    # nothing large; the network is the loopback device
    support.use_resources = ["network", "walltime"]
    support.verbose = 0
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR2, chain=False, all_threads=True)
    if hasattr(support, "record_original_stdout"):
        support.record_original_stdout(sys.stdout)
    os.chdir(tempfile.mkdtemp(prefix="regrtest-"))


def main():
    prepare()
    if importlib.util.find_spec(sys.argv[1]) is None:
        say("missing")
    else:
        unittest.TestLoader().loadTestsFromName(sys.argv[1]).run(Result())
    say("done")
    os._exit(0)  # threads a test left behind are none of ours


if __name__ == "__main__":
    main()
