"""Random generators of programs: branches of one machine must not draw the same numbers.

Generators are found among the objects the garbage collector knows, which all of them are: those of
`random`, and the bit generators and random states of numpy.
"""

import sys

from .own import __builtins__
from gc import get_objects
from hashlib import sha256


def derive(entropy, purpose):
    """Bytes for one purpose, from which the others cannot be derived."""
    return sha256(purpose.encode() + b"\0" + entropy).digest()


def numbers(data):
    """Bytes in numpy's form of a seed."""
    return [int.from_bytes(data[at : at + 4], "big") for at in range(0, len(data), 4)]


def reseed(entropy):
    """Reseeds every generator, each differently; whether there was one."""
    ways = {}
    for name, base, way in (
        ("random", "Random", seed_random),
        ("numpy.random", "BitGenerator", seed_bits),
    ):
        base = getattr(sys.modules.get(name), base, None)
        ways.update((kind, way) for kind in (kinds(base) if isinstance(base, type) else ()))
    known = shared()
    all_ones = get_objects() if ways else ()
    found = [one for one in all_ones if type(one) in ways and id(one) not in known]
    for at, one in enumerate(found):
        try:
            ways[type(one)](one, derive(entropy, "generator %d" % at))
        except Exception:
            pass  # a class of the user's that cannot be seeded
    return bool(found)


def shared():
    """The generators of the modules' own functions, which are seeded separately."""
    own = getattr(sys.modules.get("random"), "_inst", None)
    state = getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None)
    return {id(own), id(getattr(state, "_bit_generator", None))}


def kinds(base):
    """A class and all its subclasses."""
    found = [base]
    for kind in found:
        found += [one for one in type.__subclasses__(kind) if one not in found]
    return found


def seed_random(generator, seed):
    generator.seed(int.from_bytes(seed, "big"))


def seed_bits(generator, seed):
    generator.state = type(generator)(numbers(seed)).state
