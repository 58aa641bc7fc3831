"""The client: a service, and everything on it outside of machines."""

from __future__ import annotations

import json
from os import PathLike
from types import TracebackType
from typing import AsyncIterator, List, Mapping, Optional, Sequence, Type, Union

import httpx

from .. import types
from .._config import Config
from .._json import decode
from .._requests import (
    LONG_SILENCE,
    SERVICE_DEFAULT,
    Call,
    Seconds,
    When,
    at,
    get,
    machine_body,
    new_name,
    post,
    present,
    segment,
    when,
)
from .._retry import Retry
from ..errors import Conflict, refusal
from .events import listen
from .files import pieces
from .instruction import AsyncInstruction
from .machine import AsyncMachine
from .repl import AsyncRepl
from .transport import AsyncTransport

NEW = "new"


class AsyncClient:
    """A Stasis service.

    `token` and `base_url` default to `STASIS_TOKEN` and `STASIS_URL`, then to `token` and `url` in
    the CLI's `config.toml`, then to the stored login, then to the service of this host. An address
    alone may be the first argument: `Client("http://127.0.0.1:7717")`. `timeout` is how many
    seconds a connection may be silent before it counts as dead. Connections are reused until
    `close`, or until the end of a `with` block.
    """

    def __init__(
        self,
        token: Optional[str] = None,
        base_url: Optional[str] = None,
        *,
        timeout: float = 60.0,
        retry: Optional[Retry] = None,
        transport: Optional[httpx.AsyncBaseTransport] = None,
    ) -> None:
        self._transport = AsyncTransport(Config.of(token, base_url, timeout, retry), transport)

    async def close(self) -> None:
        await self._transport.close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        await self.close()

    async def whoami(self) -> types.Whoami:
        """The account and scopes of the token."""
        return await self._transport.ask(get("/v1/whoami"), types.Whoami)

    async def health(self) -> types.Health:
        """Whether the service is up. Needs no token."""
        return await self._transport.ask(get("/health"), types.Health)

    # machines

    async def create_machine(
        self,
        name: Optional[str] = None,
        *,
        template: Optional[str] = None,
        tags: Optional[Mapping[str, str]] = None,
        memory_mb: Optional[int] = None,
        limits: Optional[types.Limits] = None,
        env: Optional[Mapping[str, str]] = None,
        network: Optional[types.Network] = None,
        durability: Optional[types.Durability] = None,
        checkpoints: Optional[types.Checkpoints] = None,
        expires_at: When = None,
        retention: Optional[types.Retention] = None,
    ) -> AsyncMachine:
        """Creates a machine."""
        body = machine_body(
            name or new_name(), template, tags, memory_mb, limits, env, network, durability,
            checkpoints, expires_at,
        )
        if retention is not None:
            body["retention"] = present(retention.to_dict())
        # a unique name makes the call safe to repeat
        call = post("/v1/machine/new", body, repeatable=name is None)
        try:
            made = (await self._transport.ask(call, types.Made)).machine
        except Conflict:
            if name is not None:
                raise
            made = await self._transport.ask(get(at(body["name"])), types.Machine)
        return AsyncMachine(self._transport, made.name, made)

    def machine(self, name: str) -> AsyncMachine:
        """A machine by name, without a request to the service."""
        return AsyncMachine(self._transport, name)

    async def get_machine(self, name: str) -> AsyncMachine:
        """A machine by name; `NotFound` if there is none."""
        machine = self.machine(name)
        await machine.refresh()
        return machine

    async def list_machines(
        self,
        tags: Optional[Mapping[str, str]] = None,
        *,
        state: Optional[types.State] = None,
        created_after: When = None,
        created_before: When = None,
        memory_mb_min: Optional[int] = None,
        memory_mb_max: Optional[int] = None,
        page_size: Optional[int] = None,
    ) -> AsyncIterator[AsyncMachine]:
        """Machines that match all filters, newest first."""
        given = present(
            {
                "tags": dict(tags) if tags else None,
                "state": state,
                "created_after": when(created_after),
                "created_before": when(created_before),
                "memory_mb_min": memory_mb_min,
                "memory_mb_max": memory_mb_max,
                "limit": page_size,
            }
        )
        cursor: Optional[str] = None
        while True:
            asked = post("/v1/machine/list", present({**given, "cursor": cursor}), repeatable=True)
            page = await self._transport.ask(asked, types.MachineList)
            for info in page.machines:
                yield AsyncMachine(self._transport, info.name, info)
            cursor = page.next
            if cursor is None:
                return

    async def compare(
        self, left: Union[str, AsyncMachine], right: Union[str, AsyncMachine]
    ) -> types.Comparison:
        """The differences between two machines, or checkpoints such as `work@3`."""
        names = [side if isinstance(side, str) else side.name for side in (left, right)]
        body = {"left": names[0], "right": names[1]}
        call = Call("POST", "/v1/compare", body=body, repeatable=True, timeout=LONG_SILENCE)
        return await self._transport.ask(call, types.Comparison)

    async def lineage(self) -> List[types.Relative]:
        """All machines as families, oldest first."""
        return (await self._transport.ask(get("/v1/lineage"), types.Families)).families

    async def import_machine(
        self,
        source: Union[bytes, str, PathLike[str], AsyncIterator[bytes]],
        *,
        name: Optional[str] = None,
    ) -> AsyncMachine:
        """Imports a machine from the output of `export`: its bytes, the path of its file, or its
        pieces.

        Import only files of services you trust: the file is memory that will run.
        """
        query = present({"name": name})
        if isinstance(source, (str, PathLike)):
            with open(source, "rb") as file:
                return await self._import(pieces(file), query)
        return await self._import(source, query)

    async def _import(
        self, content: Union[bytes, AsyncIterator[bytes]], query: Mapping[str, str]
    ) -> AsyncMachine:
        call = Call("POST", "/v1/import", content=content, query=query, timeout=LONG_SILENCE)
        made = (await self._transport.ask(call, types.Made)).machine
        return AsyncMachine(self._transport, made.name, made)

    # events

    def events(
        self,
        *,
        machine: Union[str, AsyncMachine, None] = None,
        tag: Optional[str] = None,
        kind: Optional[str] = None,
        after: Optional[int] = None,
    ) -> AsyncIterator[types.Event]:
        """All changes from now on, or after event number `after`, without an end.

        `tag` is written `key=value`; `kind` is a prefix, such as `machine.`. After a broken
        connection no event is lost or repeated; events that are no longer available are reported as
        one event of kind `events.missed`.
        """
        name = machine if machine is None or isinstance(machine, str) else machine.name
        return listen(self._transport, name, tag, kind, after)

    # instructions, as foreverVM's users ask for them

    async def exec(
        self,
        code: str,
        machine_name: Union[str, AsyncMachine, None] = None,
        interrupt: bool = False,
        timeout_seconds: Seconds = SERVICE_DEFAULT,
    ) -> AsyncInstruction:
        """Submits code to a machine, or to a new one, and does not wait."""
        machine = await self._named(machine_name)
        return await machine.exec(code, interrupt=interrupt, timeout_seconds=timeout_seconds)

    async def exec_result(
        self, machine_name: Union[str, AsyncMachine], instruction_seq: int
    ) -> types.ResultBody:
        """Waits for an instruction's end; its result in foreverVM's form."""
        machine = await self._named(machine_name)
        await machine.instruction(instruction_seq).wait()
        call = get(at(machine.name, f"/exec/{instruction_seq}/result"))
        return await self._transport.ask(call, types.ResultBody)

    async def exec_result_stream(
        self, machine_name: Union[str, AsyncMachine], instruction_seq: int
    ) -> AsyncIterator[Union[types.Chunk, types.ExecResult]]:
        """Output as it arrives, and then the result in foreverVM's form."""
        machine = await self._named(machine_name)
        async for progress in machine.instruction(instruction_seq).follow():
            if isinstance(progress, types.Chunk):
                yield progress
        yield (await self.exec_result(machine, instruction_seq)).result

    async def repl(self, machine_name: Union[str, AsyncMachine] = NEW) -> AsyncRepl:
        """A REPL on a machine; a new one by default."""
        return AsyncRepl(await self._named(None if machine_name == NEW else machine_name))

    async def _named(self, machine: Union[str, AsyncMachine, None]) -> AsyncMachine:
        if machine is None:
            return await self.create_machine()
        return self.machine(machine) if isinstance(machine, str) else machine

    # templates

    async def list_templates(self) -> List[types.Template]:
        """Templates, newest first."""
        return (await self._transport.ask(get("/v1/template"), types.TemplateList)).templates

    async def get_template(self, name: str) -> types.Template:
        """A template by name or digest."""
        return await self._transport.ask(get(f"/v1/template/{segment(name)}"), types.Template)

    async def build_template(self, recipe: str) -> AsyncIterator[types.BuildLine]:
        """Builds a template from a recipe in TOML; yields its progress, and the template last."""
        body = {"recipe": recipe}
        call = Call("POST", "/v1/template/build", body=body, timeout=LONG_SILENCE)
        async for text in self._transport.lines(call):
            line = decode(types.BuildLine, json.loads(text))
            if line.error is not None:
                raise refusal(500, line.error.to_dict())
            yield line
            if line.template is not None:
                return

    async def remove_template(self, name: str) -> None:
        """Removes a template that no machine uses."""
        await self._transport.json(Call("DELETE", f"/v1/template/{segment(name)}"))

    # tokens

    async def create_token(
        self,
        name: Optional[str] = None,
        *,
        account: Optional[str] = None,
        scopes: Optional[Sequence[str]] = None,
    ) -> types.MadeToken:
        """Creates a token. Its secret is shown only once."""
        scoped = None if scopes is None else list(scopes)
        body = present({"name": name, "account": account, "scopes": scoped})
        return await self._transport.ask(post("/v1/token", body), types.MadeToken)

    async def list_tokens(self) -> List[types.Token]:
        """Tokens, oldest first, without their secrets."""
        return (await self._transport.ask(get("/v1/token"), types.TokenList)).tokens

    async def revoke_token(self, id: str) -> None:
        """Revokes a token, effective with the next request."""
        await self._transport.json(Call("DELETE", f"/v1/token/{segment(id)}"))

    # calls of tools that wait for a person

    async def list_approvals(
        self, *, all: bool = False, machine: Optional[str] = None
    ) -> List[types.ToolCall]:
        """Calls that wait for a person, newest first; with `all`, also those that are over."""
        asked = get("/v1/approvals", all="true" if all else None, machine=machine)
        return (await self._transport.ask(asked, types.ApprovalList)).approvals

    async def get_approval(self, id: int) -> types.ToolCall:
        """A call that a person was asked about, with all of its arguments."""
        return await self._transport.ask(get(f"/v1/approvals/{int(id)}"), types.ToolCall)

    async def approve(self, id: int, note: Optional[str] = None) -> types.ToolCall:
        """Allows a call that waits. A call is answered once. Requires the scope `approve`."""
        return await self._answer(id, "allow", note)

    async def deny(self, id: int, note: Optional[str] = None) -> types.ToolCall:
        """Denies a call that waits; the code gets the note. Requires the scope `approve`."""
        return await self._answer(id, "deny", note)

    async def _answer(self, id: int, answer: str, note: Optional[str]) -> types.ToolCall:
        call = post(f"/v1/approvals/{int(id)}", present({"answer": answer, "note": note}))
        return await self._transport.ask(call, types.ToolCall)

    # the store

    async def store_stats(self) -> types.StoreStats:
        """The size of the store."""
        return await self._transport.ask(get("/v1/store/stats"), types.StoreStats)

    async def store_gc(self) -> types.StoreFreed:
        """Frees data that no machine, checkpoint or template needs."""
        return await self._transport.ask(post("/v1/store/gc"), types.StoreFreed)

    async def store_check(self, *, repair: bool = False) -> types.StoreChecked:
        """Verifies all data in use."""
        call = post("/v1/store/check", {"repair": repair})
        return await self._transport.ask(call, types.StoreChecked)
