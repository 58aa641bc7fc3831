"""Proves: an event loop survives with pending tasks: sleeping, waiting on queues, events, locks, timeouts, and
sockets.
How: the loop runs in a thread (the main one speaks the protocol). A check wakes each waiting task and looks at
what it did; the sleepers must still be asleep, the ticker must tick, nobody may have been cancelled."""

import asyncio
import socket
import threading

import program

steps = 0
ticks = 0
processed, echoes = [], []
loop = asyncio.new_event_loop()


def call(coroutine):
    return asyncio.run_coroutine_threadsafe(coroutine, loop).result(program.PATIENCE)


async def ticker():
    global ticks
    while True:
        await asyncio.sleep(0.02)
        ticks += 1


async def consumer():
    while True:
        item = await queue.get()
        processed.append(item * 2)
        queue.task_done()


async def echo():
    reader, writer = await asyncio.open_connection(sock=pair[0])
    while line := await reader.readline():
        echoes.append(line)
        writer.write(line.upper())
        await writer.drain()


async def guarded():
    async with lock:  # held while waiting; the next one waits for the lock
        await asyncio.wait_for(event.wait(), 3600)
        return "woken"


async def start():
    global queue, event, lock, tasks, guards, pair
    queue, event, lock = asyncio.Queue(), asyncio.Event(), asyncio.Lock()
    pair = socket.socketpair()
    pair[0].setblocking(False)
    pair[1].settimeout(program.PATIENCE)
    tasks = [asyncio.ensure_future(task) for task in (asyncio.sleep(3600), ticker(), consumer(), echo())]
    guards = [asyncio.ensure_future(guarded()) for _ in range(2)]
    await asyncio.sleep(0.05)


async def look():
    global guards
    program.expect("tasks still pending", [task.done() for task in tasks + guards], [False] * 6)
    program.expect("lock held", lock.locked())
    event.set()
    program.expect("guarded tasks", await asyncio.wait_for(asyncio.gather(*guards), program.PATIENCE), ["woken"] * 2)
    event.clear()
    guards = [asyncio.ensure_future(guarded()) for _ in range(2)]
    await asyncio.sleep(0.02)


def feed(item):
    async def put():
        await queue.put(item)
        await asyncio.wait_for(queue.join(), program.PATIENCE)

    call(put())


def setup():
    threading.Thread(target=loop.run_forever, daemon=True).start()
    call(start())


def check():
    before = ticks
    program.expect("ticks go on", program.within_patience(lambda: ticks > before + 2))
    program.expect("items processed", processed, [n * 2 for n in range(steps)])
    call(look())
    pair[1].sendall(b"hello\n")
    program.expect("echo through a stream", pair[1].recv(100), b"HELLO\n")


def step():
    global steps
    feed(steps)
    steps += 1


program.run(setup, check, step, lambda: (steps, processed))
