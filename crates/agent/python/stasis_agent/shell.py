"""Shell commands of instructions: their output goes straight through the descriptors.

A command runs in its own session, so that an interrupt ends all of it. Its exit is reported by
number; it never raises.
"""

import sys

from .own import __builtins__
from . import network
from os import environ, killpg
from os.path import exists
from re import compile as pattern
from shlex import quote
from signal import SIGKILL, SIGTERM
from subprocess import PIPE, Popen, TimeoutExpired

_FIELD = pattern(r"(?<!\$)\{([A-Za-z_]\w*)((?:\.\w+|\[[\w'\"-]+\])*)\}")
_PIP = pattern(r"\s*pip3?(?=\s)")
# Seconds that a command may take to end after SIGTERM, and after SIGKILL on a busy host.
GRACE, DEATH = 0.5, 10


def expand(command, scope):
    """Substitutes variables of the session for `{name}`; other braces are the shell's."""

    def value(found):
        if found.group(1) not in scope:
            return found.group(0)
        try:
            return str(eval(found.group(1) + found.group(2), scope))
        except Exception:
            return found.group(0)

    return _FIELD.sub(value, command)


def is_pip(command):
    return _PIP.match(command) is not None


def own_pip(command):
    """The same command with the pip of this interpreter."""
    return _PIP.sub(lambda _: quote(sys.executable) + " -m pip", command, count=1)


def pip_environment():
    """A machine has one user: packages are installed where its Python finds them, without
    questions."""
    quiet = {
        "PIP_BREAK_SYSTEM_PACKAGES": "1",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PIP_NO_INPUT": "1",
        "PIP_ROOT_USER_ACTION": "ignore",
    }
    if not network.is_there():
        quiet["PIP_RETRIES"] = "0"
    return {**quiet, **environ}


def interpreter(name="bash"):
    for path in ("/bin/" + name, "/usr/bin/" + name):
        if exists(path):
            return path
    return "/bin/sh"


def run(arguments, env=None, capture=False):
    """Runs a program to its end. Returns its exit code and, if captured, its output."""
    child = Popen(
        arguments, env=env, stdout=PIPE if capture else None, start_new_session=True
    )
    try:
        output = child.communicate()[0] if capture else None
        return child.wait(), output
    except BaseException:
        end(child)
        raise


def end(child):
    """Ends a command and its children: with SIGTERM, then with SIGKILL."""
    for number, patience in ((SIGTERM, GRACE), (SIGKILL, DEATH)):
        try:
            killpg(child.pid, number)
            child.wait(patience)
        except (OSError, TimeoutExpired):
            continue
