"""Proves: sockets keep their less common states: names, half-closed and ended connections, full queues, senders of
datagrams, credentials, clients waiting with data, one of them watched by epoll and one gone.
How: each case arms some sockets; a check looks at all of them as their program would, and arms them again. A TCP
connection with bytes still on their way, or not accepted yet, may also have been reset, but only after a restore,
which shows in the network namespace's number."""

import os
import select
import socket
import struct

import program
from program import expect

SO_NETNS_COOKIE = 71
UNIX, INET, INET6 = socket.AF_UNIX, socket.AF_INET, socket.AF_INET6
STREAM, DGRAM, SEQPACKET = socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
steps = 0
home = None  # the namespace the sockets were armed in
listener = listener6 = None
armed = {}


def listen(family=INET, address=("127.0.0.1", 0)):
    server = socket.socket(family, STREAM)
    server.bind(address)
    server.listen(5)
    return server


def connect(server, family=INET, address=None):
    client = socket.socket(family, STREAM)
    client.connect(address or server.getsockname())
    return client, server.accept()[0]


def receive(sock, size):
    """Up to `size` bytes, fewer when the stream ends."""
    sock.settimeout(program.PATIENCE)
    data = b""
    while len(data) < size and (piece := sock.recv(size - len(data))):
        data += piece
    return data


def fill(sock):
    """Sends until nothing more fits; how much that was."""
    sock.setblocking(False)
    sent = 0
    try:
        while True:
            sent += sock.send(b"f" * 1000)
    except BlockingIOError:
        return sent


def error_of(call, *args):
    try:
        return call(*args)
    except OSError as error:
        return type(error)


def remove(name):
    if os.path.lexists(name):
        os.unlink(name)


def peer_pid(sock):
    return struct.unpack("iii", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


# ---- TCP ----


def arm_established():
    client, server = connect(listener)
    client.sendall(b"x" * 50000)
    server.sendall(b"y" * 50)
    return client, server


def check_established(client, server):
    expect("data to the server", receive(server, 50000) == b"x" * 50000)
    expect("data to the client", receive(client, 50), b"y" * 50)
    expect("names", (client.getsockname(), server.getsockname()), (server.getpeername(), client.getpeername()))
    client.sendall(b"on")
    expect("it goes on", receive(server, 2), b"on")


def arm_mapped():
    client, server = connect(listener6, INET, ("127.0.0.1", listener6.getsockname()[1]))
    server.sendall(b"mapped")
    return client, server


def check_mapped(client, server):
    expect("data between families", receive(client, 6), b"mapped")
    expect("mapped peer", server.getpeername()[0], "::ffff:127.0.0.1")


def arm_half_closed():
    client, server = connect(listener)
    client.sendall(b"half")
    client.shutdown(socket.SHUT_WR)
    return client, server


def check_half_closed(client, server):
    expect("data, then the end", receive(server, 5), b"half")
    server.sendall(b"rest")
    expect("the open direction", receive(client, 4), b"rest")
    expect("the shut direction", error_of(client.send, b"x"), BrokenPipeError)


def arm_peer_gone():
    client, server = connect(listener)
    client.sendall(b"gone")
    client.close()
    return (server,)


def check_peer_gone(server):
    expect("data of a peer that left", receive(server, 5), b"gone")


def arm_reset():
    unread, peer = connect(listener)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    peer.close()
    known, peer = connect(listener)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
    peer.close()
    expect("a reset", error_of(receive, known, 1), ConnectionResetError)
    return unread, known


def check_reset(unread, known):
    expect("a reset not yet noticed", error_of(receive, unread, 1), ConnectionResetError)
    expect("a reset already noticed", (receive(known, 1), error_of(known.send, b"x")), (b"", BrokenPipeError))


def arm_stuck():
    client, server = connect(listener)
    fill(client)
    unaccepted, waiting = listen(), socket.socket(INET, STREAM)
    waiting.connect(unaccepted.getsockname())
    return unaccepted, client, server, waiting


def check_stuck(unaccepted, *ends):
    if not restored():
        unaccepted.accept()[0].close()
        return
    for name, end in zip(("sender", "receiver", "client not accepted"), ends):
        poll = select.poll()
        poll.register(end, select.POLLIN)
        expect(f"poll of the {name}", bool(poll.poll(program.PATIENCE * 1000)))
        expect(f"end of the {name}", error_of(receive, end, 1 << 30), ConnectionResetError)


# ---- unix streams ----


def arm_by_name():
    sockets = []
    for name in ("\0corner", os.path.abspath("corner.sock"), "corner-relative.sock"):
        remove(name) if name[0] else None
        server = listen(UNIX, name)
        client, accepted = connect(server, UNIX)
        client.sendall(b"by name")
        left, kept = connect(server, UNIX)
        left.sendall(b"left")
        left.close()
        sockets += [server, client, accepted, kept]
    return sockets


def check_by_name(*sockets):
    for server, client, accepted, kept in zip(*[iter(sockets)] * 4):
        name = server.getsockname()
        expect("names", (accepted.getsockname(), client.getpeername()), (name, name))
        expect("data", receive(accepted, 7), b"by name")
        expect("data of a client that left", receive(kept, 5), b"left")
        expect("who connected, who listened", {peer_pid(accepted), peer_pid(client)}, {os.getpid()})
        again, served = connect(server, UNIX)
        again.sendall(b"new")
        expect("a new client", receive(served, 3), b"new")


def arm_moved():
    remove("moved.sock")
    name = os.path.abspath("bound.sock")
    remove(name)
    server = listen(UNIX, name)
    os.rename("bound.sock", "moved.sock")
    os.chmod("moved.sock", 0o640)
    removed = listen(UNIX, name)
    client, accepted = connect(removed, UNIX)
    os.unlink(name)
    return server, removed, client, accepted


def check_moved(server, removed, client, accepted):
    expect("name of the moved", server.getsockname(), os.path.abspath("bound.sock"))
    expect("mode of the moved", os.stat("moved.sock").st_mode & 0o7777, 0o640)
    expect("file of the removed", os.path.exists("bound.sock"), False)
    connect(server, UNIX, "moved.sock")[0].close()
    accepted.sendall(b"removed")
    expect("through the removed", receive(client, 7), b"removed")


def arm_waiting():
    server = listen(UNIX, "\0waiting")
    clients = [socket.socket(UNIX, STREAM) for _ in range(4)]
    for client in clients:
        client.connect("\0waiting")
    clients[0].sendall(b"hello")
    clients[1].sendall(b"bye")
    clients[1].shutdown(socket.SHUT_WR)
    clients[2].sendall(b"left")
    clients[2].close()
    watch = select.epoll()
    watch.register(clients[0], select.EPOLLIN)
    return server, clients[0], clients[1], clients[3], clients[0].dup(), watch


def check_waiting(server, first, second, silent, copy, watch):
    expect("nothing yet", watch.poll(0), [])
    accepted = [server.accept()[0] for _ in range(4)]
    expect("what the first sent", receive(accepted[0], 5), b"hello")
    expect("who the first is", peer_pid(accepted[0]), os.getpid())
    accepted[0].sendall(b"reply")
    expect("the first is watched", watch.poll(program.PATIENCE), [(first.fileno(), select.EPOLLIN)])
    expect("the first's copy", receive(copy, 5), b"reply")
    expect("what the second sent", receive(accepted[1], 4), b"bye")
    accepted[1].sendall(b"x")
    expect("the second hears", receive(second, 1), b"x")
    expect("what the one that left sent", receive(accepted[2], 5), b"left")
    silent.sendall(b"s")
    expect("the last speaks", receive(accepted[3], 1), b"s")


def arm_error():
    kept, peer = socket.socketpair()
    kept.sendall(b"never read")
    peer.sendall(b"last")
    peer.close()
    return (kept,)


def check_error(kept):
    expect("last words", receive(kept, 4), b"last")
    expect("the error, once", (error_of(kept.recv, 1), kept.recv(1)), (ConnectionResetError, b""))


def arm_full():
    return socket.socketpair()


def check_full(sender, receiver):
    sent = fill(sender)
    expect("as much as before", sent, arm_full.size)
    expect("all of it", receive(receiver, sent) == b"f" * sent)


# ---- messages ----


def arm_datagrams():
    for name in ("corner-a", "corner-b"):
        remove(name)
    receiver, sender, gone = (socket.socket(UNIX, DGRAM) for _ in range(3))
    receiver.bind("corner-a")
    sender.bind("corner-b")
    sender.connect("corner-a")
    sender.send(b"one")
    sender.send(b"two")
    socket.socket(UNIX, DGRAM).sendto(b"three", "corner-a")
    gone.bind("\0corner-gone")
    gone.sendto(b"four", "corner-a")
    return receiver, sender


def check_datagrams(receiver, sender):
    receiver.settimeout(program.PATIENCE)
    got = [receiver.recvfrom(100) for _ in range(4)]
    names = ["corner-b", "corner-b", None, b"\0corner-gone"]
    expect("datagrams and senders", got, list(zip([b"one", b"two", b"three", b"four"], names)))
    sender.send(b"more")
    expect("the peer", (sender.getpeername(), receiver.recv(100)), ("corner-a", b"more"))


def arm_packets():
    packets, credentials = socket.socketpair(UNIX, SEQPACKET), socket.socketpair(UNIX, DGRAM)
    packets[0].send(b"1")
    packets[0].send(b"22")
    packets[0].shutdown(socket.SHUT_WR)
    credentials[0].setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    credentials[1].send(b"who")
    return packets + credentials


def check_packets(sender, receiver, asks, answers):
    expect("packets, then the end", [receiver.recv(9) for _ in range(3)], [b"1", b"22", b""])
    receiver.send(b"back")
    expect("the open direction", sender.recv(9), b"back")
    data, control, _, _ = asks.recvmsg(9, 100)
    expect("who sent it", (data, struct.unpack("iii", control[0][2])[0]), (b"who", os.getpid()))


CASES = {
    name[4:]: (arm, globals()["check" + name[3:]]) for name, arm in list(globals().items()) if name.startswith("arm_")
}


def restored():
    return listener.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8) != home


def arm_all():
    global home
    for sockets in armed.values():
        for each in sockets:
            each.close()
    home = listener.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8)
    for name, (arm, _) in CASES.items():
        armed[name] = list(arm())


def setup():
    global listener, listener6
    listener = listen()
    try:
        listener6 = socket.create_server(("::", 0), family=INET6, dualstack_ipv6=True)
    except OSError as error:
        program.skip(f"IPv6: {error}")
    probe = socket.socketpair()
    arm_full.size = fill(probe[0])
    arm_all()


def check():
    for name, (_, look) in CASES.items():
        try:
            look(*armed[name])
        except OSError as error:
            expect(name, repr(error), "no error")
    arm_all()


def step():
    global steps
    steps += 1
    arm_all()


def digest():
    return steps, len(CASES)


program.run(setup, check, step, digest)
