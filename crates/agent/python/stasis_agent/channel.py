"""The control socket: one JSON object per line, both ways.

Lines are peeked at before they are read, so that exactly one order leaves the socket at a time. The
agent may be captured and restored between the two, and then reads from another socket than it
peeked at: the data is compared, and a partial order is dropped. The socket is used through a copy
at a high number, which survives user code that closes or overwrites descriptor 3. A forked child
closes it: only the agent itself can speak.
"""

from .own import __builtins__
from _socket import MSG_PEEK, socket
from _thread import allocate_lock
from fcntl import F_DUPFD_CLOEXEC, fcntl, ioctl
from json import JSONDecoder, JSONEncoder
from json.encoder import c_make_encoder, encode_basestring
from os import close, fstat, getpid, set_inheritable
from termios import TIOCOUTQ
from time import monotonic, sleep

CONTROL = 3
HIGH = 500
PIECE = 1 << 16

_encoder = JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_scan = JSONDecoder().scan_once


def _refuse(value):
    raise TypeError("%s is not JSON" % type(value).__name__)


try:
    # The C encoder itself: the code around it in `json` is Python that user code can break. It does
    # not detect cycles; callers that pass values of user code check their depth.
    _chunks = c_make_encoder(None, _refuse, encode_basestring, None, ":", ",", False, False, False)
except TypeError:
    _chunks = None


def encode(value):
    """JSON text. Raises ValueError or TypeError for values that JSON cannot hold."""
    return _encoder.encode(value) if _chunks is None else "".join(_chunks(value, 0))


def decode(text):
    """The value of a JSON text. Raises ValueError."""
    try:
        return _scan(text, 0)[0]
    except StopIteration:
        raise ValueError("not JSON") from None


def copy_high(descriptor):
    """A close-on-exec copy of a descriptor, at a number that programs do not use."""
    for number in (HIGH, CONTROL + 1):
        try:
            return fcntl(descriptor, F_DUPFD_CLOEXEC, number)
        except OSError as error:
            failure = error
    raise failure


def same(one, other):
    """Whether two descriptors refer to one object; false when either is closed."""
    try:
        a, b = fstat(one), fstat(other)
    except OSError:
        return False
    return (a.st_ino, a.st_dev) == (b.st_ino, b.st_dev)


class Channel:
    def __init__(self, gate):
        set_inheritable(CONTROL, False)
        self.gate = gate
        self.copy = copy_high(CONTROL)
        self.socket = socket(fileno=self.copy)
        self.lock = allocate_lock()
        self.owner = getpid()
        self.rest = b""

    def ours(self):
        """Whether this process is the agent, not a child that user code forked off."""
        return getpid() == self.owner

    def leave(self):
        """Closes the socket, in a forked child."""
        if same(CONTROL, self.copy):
            close(CONTROL)
        self.socket.close()

    def receive(self):
        """The bytes of the next line, or None at the end of the stream."""
        pieces, self.rest = [self.rest], b""
        while b"\n" not in pieces[-1]:
            seen = self.socket.recv(PIECE, MSG_PEEK)
            if not seen:
                return None
            taken = self.socket.recv(seen.find(b"\n") + 1 or len(seen))
            if not seen.startswith(taken):
                pieces = []
            pieces.append(taken)
        line = b"".join(pieces)
        end = line.find(b"\n") + 1
        self.rest = line[end:]
        return line[:end]

    def send(self, report):
        """Sends one report, whole, whatever signal arrives."""
        line = (encode(report) + "\n").encode("utf-8", "replace")
        self.gate.shielded(self._send, line)

    def _send(self, line):
        with self.lock:
            self.socket.sendall(line)

    def settle(self, seconds=1.0):
        """Waits, for a bounded time, until the host has read everything."""
        wait_empty(self.copy, TIOCOUTQ, seconds)


def wait_empty(descriptor, request, seconds):
    """Waits until an ioctl that counts unread bytes gives zero: first busily, then with naps."""
    end = monotonic() + seconds
    naps = 0
    while _count(descriptor, request):
        naps += 1
        if naps > 100:
            sleep(0.0005)
            if monotonic() > end:
                return


def _count(descriptor, request):
    try:
        return any(ioctl(descriptor, request, b"\0\0\0\0"))
    except OSError:
        return False
