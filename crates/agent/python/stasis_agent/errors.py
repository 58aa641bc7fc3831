"""The error of an instruction, as Python would print it, without the agent's frames.

Exceptions are the user's objects, and user code may have replaced the functions that the standard
library prints them with. If printing fails, the agent uses a plainer form of its own.
"""

from .own import HERE, __builtins__, is_a
from . import network
from linecache import getline
from traceback import TracebackException

LONGEST = 64 << 10
FRAMES = 1200


def failure(error):
    """The `error` of a report."""
    hint = network.hint(error)
    return {
        "name": clean(type.__getattribute__(type(error), "__name__")),
        "message": cut(message(error) + (hint and "; " + hint)),
        "traceback": cut(printed(error) + (hint and hint + "\n")),
    }


def how(error):
    """How an instruction ended, in the words of the protocol."""
    if error is None:
        return "completed"
    return "interrupted" if is_a(error, KeyboardInterrupt) else "failed"


def nameless(error):
    """The `error` of a report for an exception that cannot even be inspected."""
    name = type.__getattribute__(type(error), "__name__")
    words = "the exception could not be described"
    return {"name": clean(name), "message": words, "traceback": clean(name) + ": " + words}


def message(error):
    if is_a(error, SystemExit):
        code = SystemExit.code.__get__(error)
        code = 0 if code is None else code
        return "exit with %s: the instruction has ended, the machine goes on" % safe(repr, code)
    return safe(str, error)


def safe(function, value):
    """Text from user code, or a note that it has none."""
    try:
        return clean(function(value))
    except KeyboardInterrupt:
        raise
    except BaseException:
        return "<%s that cannot be printed>" % type(value).__name__


def printed(error):
    try:
        report = TracebackException(type(error), error, trace(error), limit=-FRAMES)
        strip(report, set())
        return clean("".join(report.format()))
    except KeyboardInterrupt:
        raise
    except BaseException:
        return plain(error)


def trace(error):
    """The traceback, however a class defines its attributes."""
    return BaseException.__traceback__.__get__(error)


def strip(report, seen):
    """Removes the agent's frames from a report and all exceptions it is chained to."""
    if report is None or id(report) in seen:
        return
    seen.add(id(report))
    report.stack[:] = users([(frame, frame.filename) for frame in report.stack])
    for other in (report.__cause__, report.__context__, *(getattr(report, "exceptions", 0) or ())):
        strip(other, seen)


def users(frames):
    """The frames from the user's first on, without the agent's."""
    names = [name for _, name in frames]
    first = next((at for at, name in enumerate(names) if name.startswith("<instruction ")), 0)
    return [frame for frame, name in frames[first:] if not name.startswith(HERE)]


def plain(error):
    """A traceback for when the standard library cannot make one."""
    frames = []
    step = trace(error)
    while step is not None:
        frames.append(((step.tb_frame.f_code, step.tb_lineno), step.tb_frame.f_code.co_filename))
        step = step.tb_next
    lines = ["Traceback (most recent call last):"]
    for code, number in users(frames)[-FRAMES:]:
        lines.append('  File "%s", line %d, in %s' % (code.co_filename, number, code.co_name))
        source = safe(lambda at: getline(code.co_filename, at).strip(), number)
        lines += ["    " + source] if source else []
    name = type.__getattribute__(type(error), "__name__")
    return clean("\n".join(lines) + "\n%s: %s\n" % (name, safe(str, error)))


def clean(text):
    """Text that UTF-8 can hold."""
    try:
        text.encode()
        return str(text)
    except UnicodeEncodeError:
        return text.encode("utf-8", "backslashreplace").decode()


def cut(text):
    """Keeps the beginning and, more of it, the end of a long text."""
    if len(text) <= LONGEST // 4:
        return text
    data = text.encode()
    if len(data) <= LONGEST:
        return text
    head, tail = data[: LONGEST // 4], data[-LONGEST // 2 :]
    left_out = len(data) - len(head) - len(tail)
    words = "\n... %d bytes left out ...\n" % left_out
    return head.decode("utf-8", "ignore") + words + tail.decode("utf-8", "ignore")
