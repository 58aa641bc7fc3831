"""The hint that errors get when a program on a machine without a network tries to reach outside."""

from .own import __builtins__, is_a
from errno import ENETUNREACH
from os import environ

DEVICES = "/proc/self/net/dev"
DEEPEST = 32


def is_there():
    """Whether the machine has a network; true if that cannot be determined."""
    try:
        with open(DEVICES, encoding="ascii", errors="replace") as devices:
            return any(line.lstrip().startswith("tun0:") for line in devices)
    except OSError:
        return True


def words():
    machine = environ.get("STASIS_MACHINE", "NAME")
    return (
        "this machine has no network: `stasis machine set %s --network open` (in the API, "
        "`network: open`) gives it one from its next wake on" % machine
    )


def hint(error):
    """The hint to add if the missing network caused the error; otherwise nothing."""
    for _ in range(DEEPEST):
        if error is None:
            return ""
        if is_outside(error):
            return "" if is_there() else words()
        error = BaseException.__cause__.__get__(error) or BaseException.__context__.__get__(error)
    return ""


def is_outside(error):
    if not is_a(error, OSError):
        return False
    name = type.__getattribute__(type(error), "__name__")
    return name == "gaierror" or OSError.errno.__get__(error) == ENETUNREACH
