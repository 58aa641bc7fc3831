"""Fresh randomness and clocks for a machine that is new, branched, or back in memory.

Randomness used for security must differ from that of every other machine with the same memory. The
kernel's is always fresh. OpenSSL has its own generator and would detect a fork only by another
process id, which a restored machine does not have: every loaded copy of the library gets fresh
entropy. Generators for simulation are reseeded only on request.
"""

import sys

from .own import __builtins__, is_a
from .display import describe
from . import generators
from .generators import derive, numbers
from os import environ
from time import tzset
from types import FunctionType
import stasis

try:
    from ctypes import CDLL, c_double
except ImportError:
    CDLL = None


class Waker:
    def __init__(self, session):
        self.session = session
        self.libraries = []
        self.modules = 0
        # A default replaces a variable of the template: it was not set for this machine.
        self.template = dict(environ)

    def wake(self, order):
        """Renews randomness and clocks. Returns descriptions of what was renewed."""
        entropy = bytes.fromhex(order["entropy"])
        changed = []
        for words, part in self.guards() + self.simulations(order):
            if self.session.gate.shielded(self.attempt, words, part, entropy):
                changed.append(words)
        for name, value in {"STASIS_MACHINE": order["machine"], **order.get("env", {})}.items():
            self.attempt("environment variable " + name, environ.__setitem__, name, value)
        for name, value in order.get("defaults", {}).items():
            self.attempt("environment variable " + name, self.default, name, value)
        tzset()
        for hook in list(stasis._hooks):
            name = hook.__name__ if is_a(hook, FunctionType) else type(hook).__name__
            self.attempt("on_wake: " + name, hook, order["reason"], list(changed))
        return changed

    def default(self, name, value):
        now = environ.get(name)
        if now is None or now == self.template.get(name):
            environ[name] = value

    def rehearse(self):
        """Runs once what every machine runs first. The cost of a first time (OpenSSL initialises
        itself and touches megabytes) is then in the memory that machines share."""
        for words, part in self.guards() + simulations():
            self.session.gate.shielded(self.attempt, words, part, bytes(32))

    def attempt(self, words, function, *arguments):
        """Calls one part; if it fails, the others continue."""
        try:
            return function(*arguments)
        except BaseException as error:
            self.session.streams.complain("%s failed: %s" % (words, describe(error)))

    def guards(self):
        return [
            ("OpenSSL random generator", self.openssl),
            ("uuid node and clock state", lambda _: forget("uuid", UUID_STATE)),
            ("tempfile names", lambda _: forget("tempfile", {"_name_sequence": None})),
        ]

    def simulations(self, order):
        """The generators to reseed if the order requests it; in a branch, the program's own too."""
        if not order["reseed"]:
            return []
        own = [("random generators", generators.reseed)] if order["reason"] == "branch" else []
        return simulations() + own

    def openssl(self, entropy):
        """Adds entropy to every OpenSSL of this process; returns whether there was one."""
        entropy = derive(entropy, "openssl")
        self.look_for_libraries()
        for add in self.libraries:
            add(entropy, len(entropy), c_double(len(entropy)))
        module = sys.modules.get("_ssl")
        if module is not None:
            module.RAND_add(entropy, float(len(entropy)))
        return bool(self.libraries) or module is not None

    def look_for_libraries(self):
        """Finds copies of libcrypto; again only when modules have been imported since."""
        if CDLL is None or self.modules == len(sys.modules):
            return
        self.modules = len(sys.modules)
        self.libraries = [add for add in map(rand_add, mapped("libcrypto")) if add is not None]


UUID_STATE = {
    "_node": None,
    "_last_timestamp": None,
    "_last_timestamp_v6": None,
    "_last_timestamp_v7": None,
    "_last_counter_v7": 0,
}


def forget(name, state):
    """Sets variables that a loaded module may have; returns whether it is loaded."""
    module = sys.modules.get(name)
    for variable, value in state.items():
        if hasattr(module, variable):
            setattr(module, variable, value)
    return module is not None


def simulations():
    """The global generators that programs simulate with."""
    return [("random", reseed_random), ("numpy.random", reseed_numpy)]


def reseed_random(entropy):
    module = sys.modules.get("random")
    if module is not None:
        module.seed(int.from_bytes(derive(entropy, "random"), "big"))
    return module is not None


def reseed_numpy(entropy):
    module = sys.modules.get("numpy.random")
    if module is not None:
        module.seed(numbers(derive(entropy, "numpy")))
    return module is not None


def mapped(part):
    """Paths of loaded libraries whose name has this part."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            paths = {line.split(None, 5)[5].strip() for line in maps if part in line}
    except OSError:
        return []
    return sorted(path for path in paths if path.startswith("/"))


def rand_add(path):
    """The function of a loaded library that adds entropy."""
    try:
        return CDLL(path).RAND_add
    except (OSError, AttributeError):
        return None
