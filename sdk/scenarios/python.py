"""The scenarios of all SDKs, with the Python SDK: each blocking and, where it differs, async."""

import asyncio
import os
import pathlib
import sys
import tempfile
import time
import uuid

import stasis
from stasis import errors

FLAKY = os.environ["STASIS_FLAKY_URL"]
NAMES = sys.argv[1:] or pathlib.Path(__file__).with_name("names.txt").read_text().splitlines()
HTML = "class Bold:\n    def _repr_html_(self): return '<b>x</b>'\n"
LONG = "for n in range(6000): print(' ' * 1000 + 'line', n)"
# goes on when there is a file `go`
GATED = "import os, time\nprint(0)\nwhile not os.path.exists('go'): time.sleep(0.01)\n"

client = stasis.Client()


def fails(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def until(condition):
    for _ in range(6000):
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it never happened")


def who():
    assert client.whoami().account == "root"
    assert client.health().templates_ready


def discovery():
    url, token = os.environ["STASIS_URL"], os.environ["STASIS_TOKEN"]
    kept = dict(os.environ)
    with tempfile.TemporaryDirectory() as here:
        try:
            os.environ.update(STASIS_TOKEN="", STASIS_DATA_DIR=here, XDG_CONFIG_HOME=here)
            fails(errors.Unauthorized, stasis.Client().whoami)
            pathlib.Path(here, "token").write_text(token + "\n")
            assert stasis.Client().whoami().account == "root"
            assert stasis.Client(url).whoami().account == "root"
            os.environ.update(STASIS_URL="", STASIS_DATA_DIR="/nothing")
            login = pathlib.Path(here, "stasis/login.toml")
            login.parent.mkdir()
            login.write_text(f'url = "{url}"\ntoken = "{token}"\n')
            login.chmod(0o600)
            assert stasis.Client().whoami().account == "root"
            login.unlink()
            config = f'url = "{url}"\ntoken = \'{token}\' # the root\'s\n[limits]\npids = 9\n'
            login.with_name("config.toml").write_text(config)
            assert stasis.Client().whoami().account == "root"
            login.with_name("config.toml").write_text(config.replace(url, "https://other"))
            fails(errors.Unauthorized, stasis.Client(url).whoami)
        finally:
            os.environ.clear()
            os.environ.update(kept)
    fails(ValueError, lambda: stasis.Client(url, url))


def machines():
    tag = uuid.uuid4().hex
    first = client.create_machine(tags={"suite": tag}, memory_mb=512)
    second = client.create_machine(f"py-{tag[:8]}", tags={"suite": tag, "n": "2"})
    assert [machine.name for machine in client.list_machines({"suite": tag})] == [
        second.name,
        first.name,
    ]
    assert [m.name for m in client.list_machines({"suite": tag, "n": "2"})] == [second.name]
    assert second.update(tags={"suite": tag}).tags == {"suite": tag}
    assert second.update(network="open").network == "open"
    with second.branch(network="none") as twig:
        assert twig.info.network == "none"
    small = client.list_machines({"suite": tag}, memory_mb_min=256, memory_mb_max=512)
    assert [machine.name for machine in small] == [first.name]
    since = client.list_machines({"suite": tag}, created_after=second.info.created_at)
    assert first.name not in [machine.name for machine in since]
    assert second.update(retention=stasis.types.Retention(last=3)).retention.last == 3
    assert second.update(retention=None).retention is None
    assert client.get_machine(first.name).info.limits.memory_mb == 512
    first.run("x = 1", quiet=True)
    assert first.swap().state == "swapped"
    assert first.wake().running
    assert first.run("x").value == "1"
    first.remove()
    with second:
        second.run("1")
    assert list(client.list_machines({"suite": tag})) == []


def pages():
    with client.create_machine() as machine:
        machine.branches(3, tags={"page": machine.name})
        found = list(client.list_machines({"page": machine.name}, page_size=2))
        assert len(found) == 3, found
        for branch in found:
            branch.remove()


def state():
    with client.create_machine() as machine:
        nothing = machine.run("x = 41")
        assert nothing.ok and nothing.value is None and nothing.address == f"{machine.name}@0"
        assert machine.run("x + 1").check().value == "42"
        assert machine.run("'text'").value == "'text'"


def output():
    code = "import sys\nfor i in range(3): print('line', i, 'é漢🦀')\nprint('bad', file=sys.stderr)\nprint()"
    with client.create_machine() as machine:
        seen = []
        result = machine.run(code, on_output=seen.append)
        assert [chunk.seq for chunk in seen] == [0, 1, 2, 3, 4], seen
        assert result.stdout == "".join(f"line {i} é漢🦀\n" for i in range(3)) + "\n"
        assert result.stderr == "bad\n" and result.output == seen
        instruction = machine.exec(GATED + "for i in range(1, 4): print(i)")
        assert next(iter(instruction.output)).data == "0"
        assert instruction.info().status == "running", "the first line came before the end"
        machine.files.write("go", "")
        assert [chunk.data for chunk in instruction.output] == ["0", "1", "2", "3"]

    async def awaited():
        async with stasis.AsyncClient() as own, await own.create_machine() as machine:
            instruction = await machine.exec(code)
            lines = [chunk.data async for chunk in instruction.output]
            assert lines[0] == "line 0 é漢🦀" and len(lines) == 5
            assert (await instruction).stderr == (await instruction.result).stderr == "bad\n"

    asyncio.run(awaited())


def rich_results():
    with client.create_machine() as machine:
        result = machine.run(HTML + "print('a')\ndisplay(Bold())\nBold()", quiet=True)
        assert result.data["text/html"] == "<b>x</b>"
        assert result.shown[0].data["text/html"] == "<b>x</b>" and result.shown[0].after == 1
        assert result._repr_mimebundle_()["text/html"] == "<b>x</b>"
        plain = machine.run("6 * 7")
        assert plain._repr_mimebundle_() == {"text/plain": "42"}
        plot = "import matplotlib.pyplot as plt\n_ = plt.plot([1, 2]); plt.show()"
        assert machine.run(plot).png.startswith(b"\x89PNG")


def failures():
    with client.create_machine() as machine:
        machine.run("x = 7")
        result = machine.run("1 / 0")
        assert not result.ok and result.error.name == "ZeroDivisionError" and result.value is None
        error = fails(stasis.InstructionError, result.check)
        assert error.name == "ZeroDivisionError" and "division by zero" in str(error)
        assert machine.run("x").value == "7"


def timeouts():
    with client.create_machine() as machine:
        machine.run("x = 7")
        result = machine.run("while True: pass", timeout_seconds=0.3)
        assert result.status == "interrupted" and result.error.name == "TimeoutError"
        assert machine.run("x", timeout_seconds=None).value == "7"


def interrupt():
    with client.create_machine() as machine:
        assert machine.interrupt() is False
        instruction = machine.exec("x = 7\nprint('on')\nwhile True: pass")
        next(iter(instruction.output))
        assert machine.interrupt() is True
        assert instruction.result.status == "interrupted"
        machine.exec("while True: pass")
        replaced = machine.exec("x", interrupt=True)
        assert replaced.interrupted and replaced.result.value == "7"


def cancel():
    with client.create_machine() as machine:
        runs = machine.exec("print('on')\nwhile True: pass")
        waits = machine.exec("x = 1")
        next(iter(runs.output))
        assert waits.cancel() is True and waits.result.status == "cancelled"
        assert runs.cancel() is False
        runs.stop()
        assert runs.result.status == "interrupted"


def waiting():
    with client.create_machine() as machine:
        instruction = machine.exec(GATED + "5")
        error = fails(errors.WaitTimeout, lambda: instruction.wait(wait_seconds=0.3))
        assert error.code == "client.wait_timeout" and error.hint
        machine.files.write("go", "")
        assert instruction.result.value == "5"


def stopped_waiting():
    async def awaited():
        async with stasis.AsyncClient() as own, await own.create_machine() as machine:
            told = asyncio.Event()
            code = "x = 7\nprint('on')\nwhile True: pass"
            task = asyncio.create_task(machine.run(code, on_output=lambda _: told.set()))
            await told.wait()
            task.cancel()
            try:
                await task
                raise AssertionError("it was not cancelled")
            except asyncio.CancelledError:
                pass
            assert (await machine.instruction(0)).status == "interrupted"
            assert (await machine.run("x")).value == "7"

    asyncio.run(awaited())


def idempotency():
    with client.create_machine() as machine:
        machine.run("x = 0")
        key = uuid.uuid4().hex
        first = machine.exec("x += 1", idempotency_key=key)
        again = machine.exec("x += 1", idempotency_key=key)
        assert first.seq == again.seq
        assert machine.run("x").value == "1"


def lost_answers():
    with stasis.Client(base_url=FLAKY) as flaky:
        machine = flaky.create_machine()
        machine.run("x = 0")
        for _ in range(4):
            machine.run("x += 1")
        assert machine.run("x").value == "4"
        assert client.get_machine(machine.name).info.instructions == 6
    client.machine(machine.name).remove()
    dead = stasis.Client(base_url="http://127.0.0.1:1", retry=stasis.Retry(attempts=2))
    assert fails(errors.Unreachable, dead.whoami).code == "service.unreachable"


def broken_streams():
    lines = [f"{i} " + "x" * 60 for i in range(200)]
    with stasis.Client(base_url=FLAKY) as flaky:
        machine = flaky.create_machine()
        result = machine.run("for i in range(200): print(i, 'x' * 60)\n'over'", quiet=True)
        assert [chunk.data for chunk in result.output] == lines and result.value == "'over'"
    client.machine(machine.name).remove()


def history():
    with client.create_machine(durability="local") as machine:
        for i in range(3):
            machine.run(f"x = {i}")
        until(lambda: [point.seq for point in machine.history()] == [0, 1, 2])
        machine.undo()
        machine.redo()
        machine.undo()
        assert machine.run("x").value == "1"
        machine.rollback(0)
        assert machine.run("x").value == "0"
        assert machine.instruction(2).info().rolled_back
        machine.rollback(None)
        assert machine.run("x").error.name == "NameError"


def branches():
    with client.create_machine(tags={"a": "1"}) as machine:
        machine.run("x = 7")
        one = machine.branch(tags={"b": "2"})
        assert one.info.tags == {"a": "1", "b": "2"} and one.info.parent.machine == machine.name
        names = [f"{machine.name}-a", f"{machine.name}-b"]
        several = machine.branches(names=names)
        assert [branch.name for branch in several] == names
        one.run("x = 8")
        machine.run("x += 2")
        assert [m.run("x").value for m in (machine, one, *several)] == ["9", "8", "7", "7"]
        early = machine.branch(seq=0)
        assert early.run("x").value == "7"
        for branch in (one, early, *several):
            branch.remove()


def the_past():
    with client.create_machine(durability="local") as machine:
        machine.run("x = 1; open('note', 'w').write('one')", quiet=True)
        machine.run("x = 2; open('note', 'w').write('two')", quiet=True)
        assert machine.label(0, "first")[0].label == "first"
        assert {var.name: var.repr for var in machine.at(0).variables()}["x"] == "1"
        home = machine.run("import os; os.getcwd()").value.strip("'")
        assert machine.at(0).read(f"{home}/note") == b"one"
        assert any(view.path.endswith("note") for view in machine.at(0).files(home))
        assert machine.lineage().tree.machine == machine.name
        assert machine.name in [family.machine for family in client.lineage()]
        assert machine.disk().checkpoints >= 2
        changed = machine.history(files=True)[1].files
        assert any(name.endswith("note") for name in changed.names), changed
        assert machine.history()[1].files is None


def compare_and_adopt():
    with client.create_machine() as machine:
        machine.run("x = 1")
        with machine.branch() as branch:
            branch.run("y = 5")
            found = client.compare(machine, branch).variables
            assert [(one.name, one.change) for one in found] == [("y", "added")], found
            assert machine.adopt(branch, ["y"]).variables == ["y"]
            assert machine.run("x + y").value == "6"


def promote():
    machine = client.create_machine()
    machine.run("x = 1")
    branch = machine.branch()
    branch.run("x = 2")
    former = branch.promote()
    assert branch.name == machine.name != former.name
    assert (machine.run("x").value, former.run("x").value) == ("2", "1")
    former.remove()
    machine.remove()


def vary():
    with client.create_machine() as machine:
        machine.run("x = 1")
        candidates = ["x += 1; x", {"variables": {"x": 10}, "code": "x"}, "1 / 0"]
        ends = sorted(machine.vary(candidates), key=lambda end: end.index)
        outcomes = [end.instruction.outcome for end in ends]
        assert [outcome.value for outcome in outcomes] == ["2", "10", None], outcomes
        assert outcomes[2].error.name == "ZeroDivisionError"
        for end in ends:
            client.machine(end.machine).remove()


def explore():
    machine = client.create_machine()
    machine.run("x = 1")
    found = machine.explore(["x = 3", "x = 7", "1 / 0"], "x")
    assert found.best.name == machine.name and machine.run("x").value == "7"
    assert [one.score for one in found.candidates] == [3.0, 7.0, None]
    assert found.former is None and len(machine.lineage().ancestors) == 1
    machine.remove()


def attempts():
    with client.create_machine() as machine:
        machine.run("x = 1")
        with machine.attempt() as attempt:
            attempt.run("x = 2")
        assert machine.run("x").value == "2"
        assert attempt.former is None
        with machine.attempt(keep=True) as attempt:
            attempt.run("x = 5")
        assert attempt.former.run("x").value == "2"
        machine.run("x = 2")
        attempt.former.remove()

        def failing():
            with machine.attempt() as attempt:
                attempt.run("x = 3")
                attempt.run("1 / 0")

        fails(stasis.InstructionError, failing)
        with machine.attempt() as attempt:
            attempt.run("x = 4")
            attempt.discard()
        assert machine.run("x").value == "2"
        assert len(machine.lineage().children) == 0


def variables():
    with client.create_machine() as machine:
        machine.run("numbers = [1, 2, 3]")
        found = {var.name: var for var in machine.variables()}
        assert found["numbers"].kind == "list" and found["numbers"].repr == "[1, 2, 3]"
        assert machine.complete("numb").names == ["numbers"]


def files():
    large = bytes(range(256)) * 40
    with client.create_machine() as machine, tempfile.TemporaryDirectory() as local:
        files = machine.files
        assert files.write("data/a.txt", "é\n", mode="600").mode == "600"
        assert machine.run("open('data/a.txt').read()").value == "'é\\n'"
        assert files.read_text("data/a.txt") == "é\n" and files.read("data/a.txt", 2, 3) == b"\n"
        machine.run("open('data/b.bin', 'wb').write(bytes(range(256)) * 40)")
        with stasis.Client(base_url=FLAKY) as flaky:
            assert flaky.machine(machine.name).files.read("data/b.bin") == large
        here = pathlib.Path(local, "c.bin")
        files.download("data/b.bin", here)
        assert here.read_bytes() == large
        assert files.upload(here, "data/c.bin").size == len(large)
        found = [(info.path.rpartition("/")[2], info.kind) for info in files.list("data", page_size=2)]
        assert found == [("a.txt", "file"), ("b.bin", "file"), ("c.bin", "file")], found
        files.remove("data/a.txt")
        fails(errors.NotFound, lambda: files.stat("data/a.txt"))
        fails(errors.ApiError, lambda: files.remove("data"))
        files.remove("data", recursive=True)
        fails(errors.InvalidRequest, lambda: files.read("../secret"))

    async def awaited():
        async with stasis.AsyncClient() as own, await own.create_machine() as machine:
            await machine.files.write("dir/a", b"12")
            assert await machine.files.read("dir/a") == b"12"
            assert [info.size async for info in machine.files.list("dir")] == [2]

    asyncio.run(awaited())


def directories():
    large = bytes(range(256)) * 11718 + bytes(range(192))
    with client.create_machine() as machine, tempfile.TemporaryDirectory() as temporary:
        files, local = machine.files, pathlib.Path(temporary)
        (local / "in" / "sub").mkdir(parents=True)
        (local / "in" / "large.bin").write_bytes(large)
        (local / "in" / "sub" / "small").write_text("é", encoding="utf-8")
        assert files.upload(local / "in" / "large.bin", "one.bin").size == 3_000_000
        assert files.upload_dir(local / "in", "tree") == 2
        look = "open('tree/sub/small').read(), open('tree/large.bin', 'rb').read() == open('one.bin', 'rb').read()"
        assert machine.run(look).value == "('é', True)"
        machine.run("import os; os.symlink('/etc/passwd', 'tree/link')")
        files.download("one.bin", local / "one.bin")
        assert (local / "one.bin").read_bytes() == large
        assert files.download_dir("tree", local / "out") == 2
        assert sorted(path.name for path in (local / "out").iterdir()) == ["large.bin", "sub"]
        assert (local / "out" / "sub" / "small").read_bytes() == "é".encode()
        fails(errors.NotFound, lambda: files.download("none", local / "none"))
        assert sorted(path.name for path in local.iterdir()) == ["in", "one.bin", "out"]
        fails(FileNotFoundError, lambda: files.upload(local / "none", "none"))

        async def awaited():
            async with stasis.AsyncClient() as own:
                again = own.machine(machine.name).files
                assert await again.upload_dir(local / "in", "") == 2
                assert await again.download_dir("sub", local / "again") == 1

        asyncio.run(awaited())


def watching():
    with client.create_machine() as machine:
        machine.files.write("seen/a", "1")
        changes = machine.files.watch("seen")
        assert next(changes).kind == "watching"
        machine.files.write("seen/b", "2")
        assert any(change.name == "b" for change in changes)
        changes.close()
        changes = machine.files.watch("seen", recursive=True)
        assert next(changes).kind == "watching"
        machine.files.write("seen/deep/down/c", "3")
        assert any(change.name == "deep/down/c" for change in changes)
        changes.close()


def artifacts():
    with client.create_machine() as machine:
        result = machine.run(LONG, quiet=True, timeout_seconds=None)
        (artifact,) = result.outcome.artifacts
        assert artifact.name == "output" and [a.id for a in machine.artifacts()] == [artifact.id]
        assert b"".join(machine.artifact(artifact.id, 1000, 1006)) == b"line 0"
        assert b"".join(machine.artifact(artifact.id)).endswith(b"line 5999\n")


def transcript():
    with client.create_machine() as machine:
        for i in range(3):
            machine.run(f"{i}")
        listed = list(machine.instructions())
        assert [(one.seq, one.code, one.status) for one in listed] == [
            (i, str(i), "done") for i in range(3)
        ]
        assert [one.seq for one in machine.instructions(1, page_size=1)] == [1, 2]
        assert listed[0].queued_at <= listed[0].finished_at


def refusals():
    error = fails(errors.NotFound, lambda: client.get_machine("nobody"))
    assert (error.code, error.status) == ("machine.not_found", 404)
    assert error.hint and error.request_id
    with client.create_machine() as machine:
        fails(errors.Conflict, lambda: client.create_machine(machine.name))
        fails(errors.InvalidRequest, lambda: client.create_machine("no/name"))
        fails(errors.NotFound, lambda: machine.instruction(7).result)
    fails(errors.InvalidRequest, lambda: client.get_machine(".."))
    fails(errors.Unauthorized, stasis.Client("a.b").whoami)


def events():
    with stasis.Client(base_url=FLAKY) as flaky:
        machine = flaky.create_machine(tags={"of": "events"})
        for i in range(12):
            machine.run(f"{i}")
        # over a way that breaks: each is told, in order, and once
        told = flaky.events(machine=machine, kind="instruction.finished", after=0)
        found = [next(told) for _ in range(12)]
        assert [event.seq for event in found] == list(range(12)), found
        assert sorted({event.id for event in found}) == [event.id for event in found]
        told.close()
    machine = client.machine(machine.name)
    assert next(machine.events(after=found[0].id - 1, kind="instruction.f")) == found[0]
    assert next(client.events(tag="of=events", after=found[3].id - 1)).id >= found[3].id

    async def awaited():
        async with stasis.AsyncClient() as own:
            told = own.events(machine=machine.name, kind="machine.removed", after=found[-1].id)
            await own.machine(machine.name).remove()
            assert (await told.__anext__()).machine == machine.name
            await told.aclose()

    asyncio.run(awaited())


def moving():
    with client.create_machine() as machine, tempfile.TemporaryDirectory() as local:
        machine.run("x = 7")
        content = b"".join(machine.export())
        copy = client.import_machine(content, name=f"{machine.name}-copy")
        assert copy.name == f"{machine.name}-copy" and copy.run("x").value == "7"
        copy.remove()
        file = pathlib.Path(local, "machine")
        machine.export_to(file, history=True, root=False)
        assert file.stat().st_size < len(content), "its template's files are in it"
        assert [path.name for path in pathlib.Path(local).iterdir()] == ["machine"]
        fails(errors.Conflict, lambda: client.import_machine(file))
        fails(errors.NotFound, lambda: client.machine("nobody").export_to(f"{local}/none"))
        fails(FileNotFoundError, lambda: client.import_machine(f"{local}/none"))
        assert [path.name for path in pathlib.Path(local).iterdir()] == ["machine"]
        with client.import_machine(file, name=f"{machine.name}-file") as whole:
            assert [one.code for one in whole.instructions()] == ["x = 7"]
        pieces = machine.export(root=False)
        with client.import_machine(pieces, name=f"{machine.name}-piped") as piped:
            assert piped.run("x + 1").value == "8"
        fails(errors.ApiError, lambda: client.import_machine(b"no machine"))


def templates():
    listed = client.list_templates()
    assert client.get_template(listed[0].name) == listed[0]
    fails(errors.NotFound, lambda: client.get_template("none"))
    fails(errors.NotFound, lambda: client.remove_template("none"))
    fails(errors.ApiError, lambda: list(client.build_template("no recipe")))


def tokens():
    made = client.create_token("suite", scopes=["machines"])
    assert made.id in [token.id for token in client.list_tokens()]
    other = stasis.Client(made.token)
    assert other.whoami().scopes == ["machines"]
    fails(errors.Forbidden, other.list_tokens)
    client.revoke_token(made.id)
    fails(errors.Unauthorized, other.whoami)


def approvals():
    assert isinstance(client.list_approvals(all=True), list)
    fails(errors.NotFound, lambda: client.get_approval(10**9))
    with client.create_machine(network="policy:asks") as machine:
        code = "import stasis\nstasis.tools.issues.delete_issue(4)"

        def waiting():
            return client.list_approvals(machine=machine.name)

        allowed = machine.exec(code)
        until(waiting)
        [call] = waiting()
        assert (call.tool, call.state, call.seq) == ("delete_issue", "waiting", allowed.seq)
        assert client.get_approval(call.id).arguments == '{"number":4}'
        made = client.create_token("suite", scopes=["machines"])
        fails(errors.Forbidden, lambda: stasis.Client(made.token).approve(call.id))
        client.revoke_token(made.id)
        assert client.approve(call.id).state == "approved"
        assert allowed.result.value == "'deleted 4'"
        fails(errors.Conflict, lambda: client.deny(call.id))
        denied = machine.exec(code)
        until(waiting)
        client.deny(waiting()[0].id, "not today")
        assert "not today" in denied.result.error.message
        assert [call.state for call in machine.calls()] == ["denied", "completed"]


def store():
    assert client.store_stats().images > 0
    assert client.store_gc().bytes >= 0
    assert isinstance(client.store_check().findings, list)


def forevervm():
    instruction = client.exec("print(123) or 567")
    body = client.exec_result(instruction.machine, instruction.seq)
    assert body.result.value == "567" and body.instruction_seq == 0
    *lines, result = client.exec_result_stream(instruction.machine, 0)
    assert [line.data for line in lines] == ["123"] and result.value == "567"
    with client.repl() as repl:
        asked = repl.exec("for i in range(2): print(i)\n'done'")
        assert [chunk.data for chunk in asked.output] == ["0", "1"]
        assert asked.result.value == "'done'"
    assert client.repl(repl.machine_name).exec("i").result.value == "1"
    repl.machine.remove()
    client.machine(instruction.machine).remove()


for name in NAMES:
    globals()[name.replace(" ", "_")]()
    print("ok", name, flush=True)
