# One session of real work. Instructions are separated by lines of `# ---`; each ends in a value
# that is the same whenever and however often the machine was out of memory in between.
import math, json
from pathlib import Path
total = 0
total
# ---
def area(radius): return round(math.pi * radius ** 2, 6)
[area(n) for n in range(3)]
# ---
import numpy as np
rng = np.random.default_rng(7)
matrix = rng.normal(size=(40, 40))
round(float(matrix.sum()), 9)
# ---
import pandas as pd
frame = pd.DataFrame({"key": list("abcd") * 25, "n": range(100), "x": rng.random(100)})
frame.shape
# ---
frame.groupby("key").n.sum().to_dict()
# ---
frame["y"] = frame.x.cumsum()
round(float(frame.y.iloc[-1]), 9)
# ---
def squares():
    n = 0
    while True:
        yield n * n
        n += 1
stream = squares()
[next(stream) for _ in range(4)]
# ---
[next(stream) for _ in range(4)]
# ---
log = open("log.txt", "w")
log.write("first\n")
# ---
log.write("second\n"); log.flush()
Path("log.txt").read_text()
# ---
import sqlite3
db = sqlite3.connect("work.db")
db.execute("create table t (k text, n int)")
db.executemany("insert into t values (?, ?)", [(k, int(n)) for k, n in zip(frame.key, frame.n)])
db.commit()
db.execute("select count(*) from t").fetchone()
# ---
db.execute("select k, sum(n) from t group by k order by k").fetchall()
# ---
cursor = db.execute("select n from t order by n")
[next(cursor)[0] for _ in range(3)]
# ---
[next(cursor)[0] for _ in range(3)]
# ---
import threading, queue
jobs, answers = queue.Queue(), queue.Queue()
def worker():
    while True:
        item = jobs.get()
        answers.put(item * 2)
thread = threading.Thread(target=worker, daemon=True)
thread.start()
jobs.put(21); answers.get(timeout=30)
# ---
jobs.put(4); jobs.put(5)
sorted([answers.get(timeout=30), answers.get(timeout=30)]), thread.is_alive()
# ---
import subprocess
subprocess.run(["sh", "-c", "echo out; echo more"], capture_output=True, text=True).stdout
# ---
child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdin.write(b"ping\n"); child.stdin.flush()
child.stdout.readline()
# ---
child.stdin.write(b"pong\n"); child.stdin.flush()
child.stdout.readline()
# ---
child.stdin.close(); child.wait(30)
# ---
import asyncio
async def later(value):
    await asyncio.sleep(0.01)
    return value
await later("awaited")
# ---
event = asyncio.Event()
async def waiter():
    await event.wait()
    return "woken"
task = asyncio.ensure_future(waiter())
await asyncio.sleep(0)
task.done()
# ---
event.set()
await task
# ---
from sklearn.linear_model import LinearRegression
model = LinearRegression().fit(frame[["n"]], frame.n * 3 + 1)
round(float(model.coef_[0]), 6), round(float(model.intercept_), 6)
# ---
[round(float(v), 6) for v in model.predict(pd.DataFrame({"n": [10, 20]}))]
# ---
import polars as pl
table = pl.DataFrame({"g": ["u", "v"] * 10, "v": list(range(20))})
table.group_by("g").agg(pl.col("v").sum()).sort("g").to_dicts()
# ---
table.filter(pl.col("v") > 15).height
# ---
import matplotlib.pyplot as plt
figure, axes = plt.subplots()
len(axes.plot(frame.n, frame.y))
# ---
axes.set_title("kept open"); axes.get_title()
# ---
import io
buffer = io.BytesIO()
figure.savefig(buffer, format="png"); plt.close(figure)
buffer.getvalue()[:8]
# ---
import random
random.seed(11)
random.random()
# ---
[random.randint(0, 9) for _ in range(5)]
# ---
np.random.seed(3)
int(np.random.randint(1000))
# ---
int(np.random.randint(1000))
# ---
class Account:
    def __init__(self): self.balance = 0
    def add(self, n): self.balance += n; return self.balance
account = Account()
account.add(5)
# ---
account.add(7)
# ---
import pickle
pickle.loads(pickle.dumps(account)).balance
# ---
Path("deep/er").mkdir(parents=True); Path("deep/er/file").write_text("x" * 1000)
# ---
sorted(str(p) for p in Path("deep").rglob("*"))
# ---
Path("deep/er/file").unlink(); Path("deep/er").rmdir(); list(Path("deep").iterdir())
# ---
1 / 0
# ---
total += 1; total
# ---
import itertools
chain = itertools.chain(range(3), "ab")
next(chain), next(chain)
# ---
list(chain)
# ---
cache = {i: bytes([i % 256]) * 5000 for i in range(200)}
sum(len(v) for v in cache.values())
# ---
import hashlib
hashlib.sha256(b"".join(cache.values())).hexdigest()[:16]
# ---
del cache
import gc; gc.collect() >= 0
# ---
import contextlib
stack = contextlib.ExitStack()
stack.callback(lambda: Path("closed").write_text("yes"))
Path("closed").exists()
# ---
stack.close(); Path("closed").read_text()
# ---
import tempfile
temporary = tempfile.NamedTemporaryFile(mode="w+")
temporary.write("held"); temporary.flush(); temporary.seek(0)
# ---
temporary.read()
# ---
import decimal, datetime
str(decimal.Decimal("1.10") + decimal.Decimal("2.20"))
# ---
import time
started = time.monotonic()
isinstance(started, float)
# ---
0 <= time.monotonic() - started < 3600
# ---
abs(time.time() - datetime.datetime.now().timestamp()) < 5
# ---
from concurrent.futures import ThreadPoolExecutor
pool = ThreadPoolExecutor(2)
list(pool.map(lambda n: n + 1, range(5)))
# ---
list(pool.map(lambda n: n * 2, range(5)))
# ---
import socket
left, right = socket.socketpair()
left.sendall(b"queued")
# ---
right.recv(100)
# ---
import scipy.optimize
round(float(scipy.optimize.brentq(lambda x: x ** 2 - 2, 0, 2)), 9)
# ---
round(float(np.linalg.det(matrix[:5, :5])), 9)
# ---
json.dumps({"total": total, "rows": len(frame), "balance": account.balance}, sort_keys=True)
