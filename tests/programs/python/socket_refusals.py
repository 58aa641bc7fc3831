"""Proves: sockets that cannot be saved are refused, and go on as if nothing had happened.
How: the argument names a case: descriptors on their way in a queue or in a connection not yet accepted, a netlink
socket. A check takes what is on its way and sends it again."""

import os
import socket
import sys

import program
from program import expect

case = sys.argv[1]
steps = 0
sender = receiver = listener = None


def send():
    sender.sendall(b"before")
    socket.send_fds(sender, [b"x"], [0, 1])
    sender.sendall(b"after")


def receive(end):
    expect("bytes before", end.recv(6), b"before")
    data, fds, _, _ = socket.recv_fds(end, 1, 5)
    expect("descriptors", (data, len(fds)), (b"x", 2))
    for fd in fds:
        os.close(fd)
    expect("bytes after", end.recv(9), b"after")


def arm():
    global sender
    if case == "backlog":
        sender = socket.socket(socket.AF_UNIX)
        sender.connect(listener.getsockname())
    if case != "netlink":
        send()


def setup():
    global sender, receiver, listener
    if case == "netlink":
        receiver = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
    elif case == "backlog":
        listener = socket.socket(socket.AF_UNIX)
        listener.bind("\0refusals")
        listener.listen(3)
    else:
        sender, receiver = socket.socketpair()
    arm()


def check():
    if case == "netlink":
        expect("family", receiver.family, socket.AF_NETLINK)
        return
    end = listener.accept()[0] if case == "backlog" else receiver
    receive(end)
    if case == "backlog":
        end.close(), sender.close()
    arm()


def step():
    global steps
    steps += 1


def digest():
    return steps, case


program.run(setup, check, step, digest)
