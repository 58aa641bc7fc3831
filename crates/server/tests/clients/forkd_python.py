"""Drives the published `forkd` client as it is through every method it has."""

import sys

from forkd import Controller, ControllerError

base, token = sys.argv[1:3]
client = Controller(base_url=base, token=token, timeout=600)


def refused(status, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except ControllerError as error:
        assert error.status == status, (error.status, error.body)
        assert isinstance(error.body, dict) and error.body["error"], error.body
        return error.body["error"]
    raise AssertionError("not refused")


tags = {one["tag"]: one for one in client.list_snapshots()}
assert tags["python"]["bootable"] and tags["python"]["status"] == "ready", tags
boxes = client.spawn_sandboxes("python", n=2, memory_limit_mib=256, prewarm=True, live_fork=True)
assert len(boxes) == 2 and boxes[0]["snapshot_tag"] == "python", boxes
assert set(boxes[0]) == {
    "id", "snapshot_tag", "netns", "guest_addr", "created_at_unix", "pid", "memory_limit_mib",
    "has_branched", "last_branch_memory_path", "branch_count",
}  # fmt: skip
box = boxes[0]["id"]
assert {one["id"] for one in client.list_sandboxes()} >= {one["id"] for one in boxes}
assert client.get_sandbox(box)["memory_limit_mib"] == 256
ping = client.ping_sandbox(box)
assert ping["pong"] is True and ping["agent_lang"] == "python", ping

done = client.exec_command(box, ["sh", "-c", "echo out; echo err >&2; exit 3"])
assert (done["stdout"], done["stderr"], done["exit_code"]) == ("out\n", "err\n", 3), done
done = client.exec_command(box, ["no-such-command"])
assert done["exit_code"] == 127 and done["kind"] == "not_found", done
for seconds in (1, 4, 16, 64):
    # a busy host may need all of it to start the command
    command = ["sh", "-c", "echo early; sleep 600"]
    done = client.exec_command(box, command, timeout_secs=seconds)
    if done["stdout"]:
        break
assert done["kind"] == "timeout" and done["stdout"] == "early\n", done
done = client.exec_command(box, ["sh", "-c", "sleep 600 & echo left"])
assert done["stdout"] == "left\n", done

assert client.eval_code(box, "6 * 7") == {"result": "42", "error": None, "exit_code": 0}
client.eval_code(box, "kept = 5")
assert client.eval_code(box, "kept + 1")["result"] == "6"
bad = client.eval_code(box, "1 / 0")
assert bad["exit_code"] == 1 and bad["error"] == "ZeroDivisionError: division by zero", bad

made = client.branch_sandbox(box, tag="first")
assert made["tag"] == "first" and made["branched_from"] == box and "pause_ms" in made, made
made = client.branch_sandbox(box, tag="second", diff=True)
assert made["diff_physical_bytes"] >= 0, made
for options in ({"mode": "live", "wait": False}, {"measure_diff": True}, {}):
    assert client.branch_sandbox(box, **options)["status"] == "ready"
assert client.get_sandbox(box)["branch_count"] == 5
refused(409, client.branch_sandbox, box, tag="first")
refused(400, client.branch_sandbox, box, tag="a.b")
refused(400, client.branch_sandbox, box, wait=False)

child = client.spawn_sandboxes("first", n=1)[0]["id"]
first = client.eval_code(child, "kept")
assert first["result"] == "5", first
assert client.kill_sandbox(box) is None
refused(404, client.get_sandbox, box)
refused(404, client.exec_command, box, ["true"])
assert client.eval_code(child, "kept * 2")["result"] == "10"
assert client.delete_snapshot("first") is None
refused(404, client.delete_snapshot, "first")
refused(404, client.spawn_sandboxes, "first")
refused(400, client.spawn_sandboxes, "second", n=0)
refused(400, client.spawn_sandboxes, "second", n=1001)
refused(400, client.exec_command, child, [])
again = client.spawn_sandboxes("second")[0]["id"]
assert client.eval_code(again, "kept")["result"] == "5"
try:
    Controller(base_url=base, token="x.wrong").list_snapshots()
    raise AssertionError("no token was needed")
except ControllerError as error:
    assert error.status == 401 and "bearer token" in error.body["error"], error.body
