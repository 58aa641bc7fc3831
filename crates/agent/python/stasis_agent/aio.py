"""Top-level await: one event loop that lives as long as the session.

The loop runs only while an instruction with `await` runs. Tasks that one instruction starts
continue whenever a later one awaits something, and are suspended in between.
"""

from .own import __builtins__
from importlib import import_module

DRAIN = 1.0


class Loop:
    def __init__(self, gate):
        self.gate = gate
        self.loop = None
        self.cancelled = False

    def run(self, coroutine):
        """Runs a coroutine to its end and returns its value."""
        asyncio = self.gate.shielded(import_module, "asyncio")
        if self.loop is None or self.loop.is_closed():
            self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        task = self.loop.create_task(coroutine)
        self.cancelled = False
        self.gate.soften = lambda frame: self._cancel(task, frame)
        try:
            return self.loop.run_until_complete(task)
        except asyncio.CancelledError as error:
            if self.cancelled:
                raise KeyboardInterrupt().with_traceback(error.__traceback__) from None
            raise
        finally:
            self.gate.soften = None
            if not task.done():
                self._drain(asyncio, task)

    def _cancel(self, task, frame):
        """Cancels instead of raising inside the loop's own code, where that could lose events."""
        name = frame.f_code.co_filename
        if task.done() or not ("asyncio" in name or name.endswith("selectors.py")):
            return False
        self.cancelled = True
        self.loop.call_soon_threadsafe(task.cancel)
        return True

    def _drain(self, asyncio, task):
        """After an interrupt in the middle of things: lets the task end, for a bounded time."""
        task.cancel()
        self.loop.run_until_complete(asyncio.wait([task], timeout=DRAIN))
        if task.done() and not task.cancelled():
            task.exception()
