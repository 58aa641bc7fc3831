"""What is made fresh when a machine is new, branched, or back.

Randomness that guards something must differ from every other machine with the same memory. The
kernel's is fresh by itself. OpenSSL keeps a generator of its own and would notice a fork only by
another process id, which a restored machine does not have: it is given fresh entropy, in every copy
of the library that is loaded. Generators for simulation change only if that is asked for.
"""

import sys

from .own import __builtins__
from hashlib import sha256
from os import environ
from time import tzset
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

    def wake(self, order):
        """Makes things fresh. Returns in words what."""
        self.session.prepare()
        environ["STASIS_MACHINE"] = order["machine"]
        for name, value in order.get("env", {}).items():
            environ[name] = value
        tzset()
        entropy = bytes.fromhex(order["entropy"])
        changed = self.guards(entropy)
        if order["reseed"]:
            changed += simulations(entropy)
        self.call_hooks(order["reason"], changed)
        self.session.streams.flush()
        return changed

    def guards(self, entropy):
        changed = []
        if self.openssl(derive(entropy, "openssl")):
            changed.append("OpenSSL random generator")
        if forget("uuid", UUID_STATE):
            changed.append("uuid node and clock state")
        if forget("tempfile", {"_name_sequence": None}):
            changed.append("tempfile names")
        return changed

    def openssl(self, entropy):
        """Stirs entropy into every OpenSSL of this process; says whether there was one."""
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

    def call_hooks(self, reason, changed):
        for hook in list(stasis._hooks):
            _, error = self.session.gate.run(hook, reason, list(changed))
            if error is not None:
                self.session.streams.complain(
                    "on_wake: %s failed: %s: %s"
                    % (getattr(hook, "__name__", "hook"), type(error).__name__, text(error))
                )


UUID_STATE = {
    "_node": None,
    "_last_timestamp": None,
    "_last_timestamp_v6": None,
    "_last_timestamp_v7": None,
    "_last_counter_v7": 0,
}


def text(error):
    try:
        return str(error)
    except Exception:
        return "?"


def derive(entropy, purpose):
    """Bytes for one purpose, from which the others cannot be told."""
    return sha256(purpose.encode() + b"\0" + entropy).digest()


def forget(name, state):
    """Sets variables a loaded module may have; says whether it is loaded."""
    module = sys.modules.get(name)
    for variable, value in state.items():
        if hasattr(module, variable):
            setattr(module, variable, value)
    return module is not None


def simulations(entropy):
    """Reseeds the global generators that programs simulate with."""
    changed = []
    random = sys.modules.get("random")
    if hasattr(random, "seed"):
        random.seed(int.from_bytes(derive(entropy, "random"), "big"))
        changed.append("random")
    numpy = sys.modules.get("numpy.random")
    if hasattr(numpy, "seed"):
        words = derive(entropy, "numpy")
        numpy.seed([int.from_bytes(words[at : at + 4], "big") for at in range(0, 32, 4)])
        changed.append("numpy.random")
    return changed


def mapped(part):
    """Paths of loaded libraries whose name has this part."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
            paths = {line.split(None, 5)[5].strip() for line in maps if part in line}
    except OSError:
        return []
    return sorted(path for path in paths if path.startswith("/"))


def rand_add(path):
    """The function of a loaded library that takes entropy."""
    try:
        return CDLL(path).RAND_add
    except (OSError, AttributeError):
        return None
