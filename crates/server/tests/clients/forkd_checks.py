"""Checks that a superset of forkd has to pass, by the published client, numbered as they are listed.

Arguments: address, token, the service's directory of contents, children of one spawn, MiB that are
written while a branch is taken, links of a chain. Figures go to standard output.
"""

import json
import os
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

from forkd import Controller

base, token, contents = sys.argv[1:4]
many, mib, links = map(int, sys.argv[4:7])
client = Controller(base_url=base, token=token, timeout=600)
pool = ThreadPoolExecutor(8)


def run(box, code):
    answer = client.eval_code(box, code)
    assert answer["error"] is None, (code, answer)
    return answer["result"]


def spawn(tag, n=1, **options):
    return [one["id"] for one in client.spawn_sandboxes(tag, n=n, **options)]


def post(path, body):
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    request = urllib.request.Request(base + path, json.dumps(body).encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=600) as answer:
        return answer.read().decode()


def kill(boxes):
    list(pool.map(client.kill_sandbox, boxes))


def size():
    total = 0
    for directory, _, names in os.walk(contents):
        for name in names:
            try:
                about = os.lstat(os.path.join(directory, name))
            except FileNotFoundError:
                continue
            total += about.st_blocks * 512 if about.st_nlink == 1 else 0
    return total


def figure(name, value):
    print("%s: %s" % (name, value), flush=True)


# 2: children that each write and sync the same path do not meet
(source,) = spawn("python")
run(source, "import os, random, secrets, uuid, time; open('f', 'w').write('base')")
client.branch_sandbox(source, tag="written")
boxes = spawn("written", many)


def write(numbered):
    number, box = numbered
    run(box, "f = open('f', 'w'); f.write('%d ' * 1000); f.flush(); os.fsync(f.fileno())" % number)
    return run(box, "set(open('f').read().split()) == {'%d'}" % number)


assert list(pool.map(write, enumerate(boxes))) == ["True"] * many
assert run(source, "open('f').read()") == "'base'"

# 11: each has random numbers, an identity and the time of its own
draw = "(random.random(), secrets.token_hex(8), str(uuid.uuid1()), os.environ['STASIS_MACHINE'])"
run(source, "random.seed(1)")
client.branch_sandbox(source, tag="seeded")
drawn = list(pool.map(lambda box: run(box, draw), spawn("seeded", 20)))
for column in zip(*map(eval, drawn)):
    assert len(set(column)) == 20, column
clock = float(run(boxes[0], "time.time()"))
assert abs(clock - time.time()) < 60, clock
kill(boxes)

# 3: memory, a file and a stream are of one instant
(counter,) = spawn("python")
run(
    counter,
    """
import os, socket, threading, time
server = socket.create_server(('127.0.0.1', 0))
def echo():
    while True:
        connection, _ = server.accept()
        try:
            while data := connection.recv(64):
                connection.sendall(data)
        except OSError:
            pass
def connect():
    return socket.create_connection(server.getsockname())
threading.Thread(target=echo, daemon=True).start()
file, n, heard, resets, stop = os.open('n', os.O_RDWR | os.O_CREAT), 0, 0, 0, False
def count():
    global n, heard, resets
    stream = connect()
    while not stop:
        n += 1
        os.pwrite(file, b'%12d' % n, 0)
        try:
            stream.sendall(b'%12d' % n)
            heard = int(stream.recv(64))
        except OSError:
            # said out loud: never another number
            resets, heard, stream = resets + 1, n, connect()
thread = threading.Thread(target=count)
thread.start()
while not heard:
    time.sleep(0.01)
""",
)
look = "stop = True; thread.join(); ok = int(os.pread(file, 12, 0)) == n == heard > 0"
again = "; stop = False; thread = threading.Thread(target=count); thread.start(); last = n"
for turn in range(4):
    tag = "counting-%d" % turn
    client.branch_sandbox(counter, tag=tag)
    (child,) = spawn(tag)
    run(child, look + again)
    assert run(child, "ok") == "True", tag
    run(child, "while n == last: time.sleep(0.01)")
    assert run(child, "n > last") == "True"
    kill([child])
run(counter, "stop = True; thread.join()")
assert run(counter, "(int(os.pread(file, 12, 0)) == n == heard, resets)") == "(True, 0)"

# 4: simultaneous branches keep their canaries
sources = spawn("python", 4)
for number, box in enumerate(sources):
    run(box, "canary = bytes([%d]) * (4 << 20)" % (65 + number))
list(pool.map(lambda box: client.branch_sandbox(box, tag="canary-" + box[-8:]), sources))
for number, box in enumerate(sources):
    (child,) = spawn("canary-" + box[-8:])
    assert run(child, "(set(canary), len(canary))") == "({%d}, %d)" % (65 + number, 4 << 20)
    kill([child])

# 5: any ancestor can go, and the rest is branched again
line = [source]
for generation in ("one", "two", "three"):
    run(line[-1], "line = globals().get('line', []) + ['%s']" % generation)
    client.branch_sandbox(line[-1], tag="line-" + generation)
    line += spawn("line-" + generation)
for generation in ("two", "one"):
    client.delete_snapshot("line-" + generation)
client.kill_sandbox(line[1])
client.branch_sandbox(line[-1], tag="line-last")
(child,) = spawn("line-last")
assert run(child, "line") == "['one', 'two', 'three']"
assert run(spawn("line-three")[0], "line") == "['one', 'two', 'three']"

# 6: a tag that no call waited for
run(source, "hurried = 6")
made = client.branch_sandbox(source, tag="hurried", mode="live", wait=False)
assert made["status"] in ("ready", "writing"), made
assert run(spawn("hurried")[0], "hurried") == "6"
assert [one["tag"] for one in client.list_snapshots()].count("hurried") == 1

# 8: how long the source stands still while it writes
(writer,) = spawn("python")
run(
    writer,
    """
import threading, time
block, longest, stop = bytearray(%d << 20), 0.0, False
def churn():
    global longest
    at, last = 0, time.monotonic()
    while not stop:
        block[at : at + 4096] = b'x' * 4096
        at = (at + 4096) %% len(block)
        now = time.monotonic()
        longest, last = max(longest, now - last), now
thread = threading.Thread(target=churn)
thread.start()
"""
    % mib,
)
stalls = []
for turn in range(3):
    run(writer, "longest = 0.0")
    client.branch_sandbox(writer, tag="writer-%d" % turn)
    stalls.append(float(run(writer, "longest")))
run(writer, "stop = True; thread.join()")
figure("8: longest stall in ms, %d MiB being written" % mib, [round(1000 * one) for one in stalls])
assert max(stalls) < 30, stalls
kill([writer])

# 9: until all of them have answered, and what each takes
run(source, "small = 1")
client.branch_sandbox(source, tag="small")
for count in (1, 10, many // 4):
    begun = time.monotonic()
    boxes = spawn("small", count)
    done = list(pool.map(lambda box: client.exec_command(box, ["echo", box]), boxes))
    took = time.monotonic() - begun
    assert [one["stdout"].strip() for one in done] == boxes
    rollup = run(boxes[0], "open('/proc/self/smaps_rollup').read()")
    pss = [line for line in eval(rollup).splitlines() if line.startswith("Pss:")]
    figure("9: %d children have answered, ms" % count, round(1000 * took))
    figure("9: memory of one of them", pss)
    kill(boxes)

# 10: a chain of differences
first, growth, deltas, box = None, size(), 0, None
for link in range(links):
    begun = time.monotonic()
    parent = "chain-%d" % (link - 1) if link else "written"
    (box,) = spawn(parent)
    run(box, "line = globals().get('line', []) + [%d]" % link)
    took = time.monotonic() - begun
    first = first or took
    body = {"tag": "chain-%d" % link, "mode": "diff", "parent_tag": parent}
    made = json.loads(post("/v1/sandboxes/%s/branch" % box, body))
    deltas += made["diff_physical_bytes"]
    kill([box])
last = spawn("chain-%d" % (links - 1))[0]
assert run(last, "line") == str(list(range(links)))
growth = size() - growth
figure("10: spawn to first result in ms, first and last of %d links" % links,
       [round(1000 * first), round(1000 * took)])
figure("10: bytes of all differences, and growth on disk", [deltas, growth])
assert growth < 3 * deltas + links * (256 << 10), (growth, deltas)

# 12: what became of a command
for seconds in (1, 4, 16, 64):
    # a busy host may need all of it to start the command
    command = ["sh", "-c", "echo part; sleep 600"]
    done = client.exec_command(source, command, timeout_secs=seconds)
    if done["stdout"]:
        break
assert (done["kind"], done["stdout"], done["exit_code"]) == ("timeout", "part\n", 124), done
done = client.exec_command(source, ["no-such-command"])
assert (done["kind"], done["exit_code"]) == ("not_found", 127), done
path = "/v1/sandboxes/%s/exec" % source
for tty in (False, True):
    done = json.loads(post(path, {"args": ["no-such-command"], "tty": tty}))
    assert (done["kind"], done["exit_code"]) == ("not_found", 127), done
    done = json.loads(post(path, {"args": ["/etc/passwd"], "tty": tty}))
    assert (done["kind"], done["exit_code"]) == ("not_started", 126), done
    done = json.loads(post(path, {"args": ["sleep", "60"], "timeout_secs": 1, "tty": tty}))
    assert done["kind"] == "timeout", done
typed = "x" * 100 + "\n"
done = json.loads(post(path, {"args": ["wc", "-c"], "stdin": typed * 100, "tty": True}))
assert done["stdout"].strip().endswith(str(100 * len(typed))), done["stdout"][-200:]
lines = [json.loads(line) for line in
         post(path, {"args": ["sh", "-c", "cat; exit 3"], "stdin": "a\nb\n", "stream": True}).splitlines()]
assert [one.get("data") for one in lines[:-1]] == ["a", "b"] and lines[-1]["exit_code"] == 3, lines
