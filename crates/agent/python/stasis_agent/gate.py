"""Interrupts: SIGINT reaches user code as KeyboardInterrupt, and never the agent.

    run(f)         f runs; a signal raises in it
    shielded()     user code is in the agent's hands for a moment; a signal waits
    anywhere else  a signal is ignored

A signal that arrives in the frame of `run` itself is too early or too late to be raised there: if
early, it is raised as soon as `call` starts; if late, the work is done and the signal is ignored.
"""

from .own import __builtins__
from _signal import SIG_UNBLOCK, SIGINT, getsignal, pthread_sigmask, signal
from _thread import get_ident


class Gate:
    def __init__(self):
        self.open = False
        self.pending = False
        self.shields = 0
        self.main = get_ident()
        # Called first, with the interrupted frame; true if it handled the interrupt.
        self.soften = None
        self.handler = self._signalled

    def install(self):
        """Handles SIGINT, replacing any other handler."""
        if getsignal(SIGINT) is not self.handler:
            signal(SIGINT, self.handler)
        pthread_sigmask(SIG_UNBLOCK, (SIGINT,))

    def _signalled(self, _number, frame):
        if not self.open:
            return
        if self.shields or frame is None or frame.f_code is EDGE:
            self.pending = True
        elif self.soften is None or not self.soften(frame):
            raise KeyboardInterrupt

    def run(self, function, *arguments):
        """Calls a function that may be interrupted. Returns its value and its exception."""
        value = error = None
        self.pending = False
        self.open = True
        try:
            value = self.call(function, arguments)
        except BaseException as caught:
            error = caught
        self.open = False
        return value, error

    def call(self, function, arguments):
        self.raise_pending()
        return function(*arguments)

    def raise_pending(self):
        if self.pending and self.open:
            self.pending = False
            raise KeyboardInterrupt

    def shielded(self, function, *arguments):
        """Calls a function that must not stop half-way."""
        if get_ident() != self.main:
            return function(*arguments)  # signals are never handled in other threads
        self.shields += 1
        try:
            return function(*arguments)
        finally:
            self.shields -= 1
            self.raise_pending()


EDGE = Gate.run.__code__
