"""Transfers variables by name through a file: to another Python, or past an upgrade.

    "stasis-variables-1\\n", then for each variable: two lengths, its name, its pickle

The pickles share one memo, so that an object shared by two variables is still one object after
loading; the order is that of the names. Definitions of the session itself (functions, classes)
exist nowhere else: cloudpickle includes them by value where it is installed, and without it such a
variable is refused by name.
"""

from .own import __builtins__
from .display import describe
from io import BytesIO
from os import fsync, replace
from pickle import PicklingError, Pickler, Unpickler
from struct import Struct
from types import FunctionType

MAGIC = b"stasis-variables-1\n"
LENGTHS = Struct("<QQ")


class PlainPickler(Pickler):
    """Refuses objects that only this session has."""

    def reducer_override(self, value):
        if isinstance(value, (type, FunctionType)) and value.__module__ == "__main__":
            raise PicklingError(
                "%s was defined in this session; carrying it needs cloudpickle" % value.__qualname__
            )
        return NotImplemented


def pickler():
    try:
        from cloudpickle import CloudPickler

        return CloudPickler
    except ImportError:
        return PlainPickler


def save(scope, names, path):
    """Writes variables to a file. Returns the names written, and why others were not."""
    failed = {name: "there is no such variable" for name in names if name not in scope}
    wanted = [name for name in dict.fromkeys(names) if name not in failed]
    records = None
    while records is None:
        records = pickle_all(scope, wanted, failed)
        wanted = [name for name in wanted if name not in failed]
    try:
        write(path, wanted, records)
    except OSError as error:
        return [], {**failed, **{name: describe(error) for name in wanted}}
    return wanted, failed


def pickle_all(scope, names, failed):
    """The pickles of all; None if one failed, because later ones may refer to it."""
    sink = BytesIO()
    dump = pickler()(sink, protocol=5).dump
    records = []
    for name in names:
        sink.seek(0)
        sink.truncate()
        try:
            dump(scope[name])
        except Exception as error:
            failed[name] = describe(error)
            return None
        records.append(sink.getvalue())
    return records


def write(path, names, records):
    """Writes a file atomically."""
    with open(path + ".part", "wb") as file:
        file.write(MAGIC)
        for name, record in zip(names, records):
            data = name.encode("utf-8", "surrogatepass")
            file.write(LENGTHS.pack(len(data), len(record)) + data)
            file.write(record)
        file.flush()
        fsync(file.fileno())
    replace(path + ".part", path)


def load(scope, path):
    """Reads variables from a file. Returns the names read, and why others were not."""
    names, failed = [], {}
    try:
        with open(path, "rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ValueError("this is not a file of variables")
            for name, value, error in values(file):
                if error is None:
                    scope[name] = value
                    names.append(name)
                else:
                    failed[name] = describe(error)
    except (OSError, ValueError) as error:
        failed[path] = describe(error)
    return names, failed


def values(file):
    """Each variable's name, value and failure. Variables after a failure may refer to it, so they
    are refused."""
    source = Source()
    reader = Unpickler(source)
    broken = None
    for name, record in records_of(file):
        value = failure = None
        if broken is not None:
            failure = ValueError("it may refer to %s, which could not be read" % broken)
        else:
            source.give(record)
            try:
                value = reader.load()
            except Exception as error:
                failure, broken = error, name
        yield name, value, failure


class Source:
    """A file that continues with every record that is added."""

    def give(self, record):
        self.file = BytesIO(record)

    def read(self, size):
        return self.file.read(size)

    def readline(self):
        return self.file.readline()

    def readinto(self, buffer):
        return self.file.readinto(buffer)


def records_of(file):
    while True:
        head = file.read(LENGTHS.size)
        if not head:
            return
        if len(head) < LENGTHS.size:
            raise ValueError("the file ends early")
        name, record = (file.read(length) for length in LENGTHS.unpack(head))
        yield name.decode("utf-8", "surrogatepass"), record
