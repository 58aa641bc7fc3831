"""Drives the published `forevervm-sdk` through every call it has, against a service of ours.

    forevervm_python.py BASE_URL TOKEN
"""

import asyncio
import sys

import httpx
from forevervm_sdk import ForeverVM

base, token = sys.argv[1:]
# the SDK leaves its client's five seconds as they are, which a busy host may need for anything
for wait in ("connect", "read", "write", "pool"):
    setattr(httpx._config.DEFAULT_TIMEOUT_CONFIG, wait, 600)
fvm = ForeverVM(token, base_url=base)


def whoami():
    assert fvm.whoami()["account"] == "root"
    assert asyncio.run(ForeverVM(token, base_url=base).whoami_async())["account"] == "root"


def machines():
    first = fvm.create_machine()["machine_name"]
    tags = {"client": "python", "n": "1"}
    second = fvm.create_machine(tags=tags, memory_mb=512)["machine_name"]
    listed = {machine["name"]: machine for machine in fvm.list_machines()["machines"]}
    assert listed[first]["tags"] == {}
    assert listed[second]["tags"] == tags
    names = list(listed)
    assert names.index(second) < names.index(first)

    async def again():
        own = ForeverVM(token, base_url=base)
        name = (await own.create_machine_async(tags=tags))["machine_name"]
        found = (await own.list_machines_async())["machines"]
        assert next(m for m in found if m["name"] == name)["tags"] == tags

    asyncio.run(again())


def exec_and_result():
    name = fvm.create_machine()["machine_name"]
    asked = fvm.exec("print(123) or 567", name)
    assert asked["instruction_seq"] == 0, asked
    result = fvm.exec_result(name, 0)
    assert result["result"]["value"] == "567", result
    assert "error" not in result["result"]
    fresh = fvm.exec("1 + 1")
    assert fvm.exec_result(fresh["machine"], fresh["instruction_seq"])["result"]["value"] == "2"

    async def again():
        own = ForeverVM(token, base_url=base)
        asked = await own.exec_async("print(123) or 567", name)
        result = await own.exec_result_async(name, asked["instruction_seq"])
        assert result["result"]["value"] == "567", result

    asyncio.run(again())


def timeouts():
    name = fvm.create_machine()["machine_name"]
    fvm.exec("from time import sleep", name)
    for _ in range(2):
        asked = fvm.exec("sleep(10)", name, timeout_seconds=1)
        result = fvm.exec_result(name, asked["instruction_seq"])
        assert "Timed out" in result["result"]["error"], result
    asked = fvm.exec("sleep(0.1); 'awake'", name)
    assert fvm.exec_result(name, asked["instruction_seq"])["result"]["value"] == "'awake'"


def interrupts():
    name = fvm.create_machine()["machine_name"]
    asked = fvm.exec("import time; time.sleep(30)", name, timeout_seconds=60)
    after = fvm.exec("'after'", name, interrupt=True)
    assert "error" in fvm.exec_result(name, asked["instruction_seq"])["result"]
    result = fvm.exec_result(name, after["instruction_seq"])["result"]
    assert result["value"] == "'after'", result


def repl():
    with fvm.repl() as repl:
        running = repl.exec("for i in range(5):\n  print(i)")
        chunks = list(running.output)
        assert chunks == [{"stream": "stdout", "data": str(i), "seq": i} for i in range(5)], chunks
        assert running.result["value"] is None
        failed = repl.exec("1 / 0").result
        assert "ZeroDivisionError" in failed["error"] and "value" not in failed, failed
        late = repl.exec("from time import sleep; sleep(10)", timeout_seconds=1)
        assert "Timed out" in late.result["error"]
        last = repl.exec("sleep(0.2); print('done')", timeout_seconds=600)
        assert list(last.output) == [{"stream": "stdout", "data": "done", "seq": 0}]
        many = repl.exec("for i in range(2000): print(i)")
        assert [chunk["seq"] for chunk in many.output] == list(range(2000))
        assert many.result["value"] is None


def repl_of_a_machine():
    name = fvm.create_machine()["machine_name"]
    asked = fvm.exec("state = 'kept'", name)
    fvm.exec_result(name, asked["instruction_seq"])
    with fvm.repl(name) as repl:
        assert repl.exec("state").result["value"] == "'kept'"


def failures():
    for wrong in ("x.y", "x"):
        try:
            ForeverVM(wrong, base_url=base).whoami()
        except httpx.HTTPStatusError as error:
            assert error.response.status_code == 401
            assert error.response.json()["code"] == "token.unknown"
        else:
            raise AssertionError(wrong)
    try:
        fvm.exec("1", "no-such-machine")
    except httpx.HTTPStatusError as error:
        assert error.response.status_code == 404
    else:
        raise AssertionError("a machine that is not there")


for check in (
    whoami, machines, exec_and_result, timeouts, interrupts, repl, repl_of_a_machine, failures,
):
    print(check.__name__, flush=True)
    check()
