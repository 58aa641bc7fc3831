# Written by `python3 sdk/generate` from _async/client.py; change that instead.

"""The way in: a service, and what is on it besides the inside of machines."""

from __future__ import annotations

import json
from types import TracebackType
from typing import Iterator, List, Mapping, Optional, Sequence, Type, Union

import httpx

from .. import types
from .._config import Config
from .._json import decode
from .._requests import (
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
)
from .._retry import Retry
from ..errors import Conflict, Unreachable, refusal
from .instruction import Instruction
from .machine import Machine
from .repl import Repl
from .transport import Transport, judge

NEW = "new"
# A build says something at least when a step begins; some steps take minutes.
BUILD_SILENCE = 3600.0


class Client:
    """A Stasis service.

    `token` and `base_url` default to `STASIS_TOKEN` and `STASIS_URL`. `timeout` is how many
    seconds a connection may be silent before it counts as dead. Connections are kept and used
    again until `close`, or until the end of a `with` block.
    """

    def __init__(
        self,
        token: Optional[str] = None,
        base_url: Optional[str] = None,
        *,
        timeout: float = 60.0,
        retry: Optional[Retry] = None,
        transport: Optional[httpx.BaseTransport] = None,
    ) -> None:
        self._transport = Transport(Config.of(token, base_url, timeout, retry), transport)

    def close(self) -> None:
        self._transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        self.close()

    def whoami(self) -> types.Whoami:
        """Whose token it is."""
        return self._transport.ask(get("/v1/whoami"), types.Whoami)

    def health(self) -> types.Health:
        """Whether the service lives. Needs no token."""
        return self._transport.ask(get("/health"), types.Health)

    # machines

    def create_machine(
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
        expires_at: When = None,
    ) -> Machine:
        """Makes a machine."""
        body = machine_body(
            name or new_name(), template, tags, memory_mb, limits, env, network, durability,
            expires_at,
        )
        # a name that nobody else can have chosen makes the call safe to repeat
        call = post("/v1/machine/new", body, repeatable=name is None)
        try:
            made = (self._transport.ask(call, types.Made)).machine
        except Conflict:
            if name is not None:
                raise
            made = self._transport.ask(get(at(body["name"])), types.Machine)
        return Machine(self._transport, made.name, made)

    def machine(self, name: str) -> Machine:
        """A machine by name, without asking the service."""
        return Machine(self._transport, name)

    def get_machine(self, name: str) -> Machine:
        """A machine by name; `NotFound` if there is none."""
        machine = self.machine(name)
        machine.refresh()
        return machine

    def list_machines(
        self,
        tags: Optional[Mapping[str, str]] = None,
        *,
        state: Optional[types.State] = None,
        page_size: Optional[int] = None,
    ) -> Iterator[Machine]:
        """Machines with all of these tags and in this state, newest first."""
        given = present({"tags": dict(tags) if tags else None, "state": state, "limit": page_size})
        cursor: Optional[str] = None
        while True:
            asked = post("/v1/machine/list", present({**given, "cursor": cursor}), repeatable=True)
            page = self._transport.ask(asked, types.MachineList)
            for info in page.machines:
                yield Machine(self._transport, info.name, info)
            cursor = page.next
            if cursor is None:
                return

    # instructions, as foreverVM's users ask for them

    def exec(
        self,
        code: str,
        machine_name: Union[str, Machine, None] = None,
        interrupt: bool = False,
        timeout_seconds: Seconds = SERVICE_DEFAULT,
    ) -> Instruction:
        """Gives code to a machine, or to one that is made for it, and does not wait."""
        machine = self._named(machine_name)
        return machine.exec(code, interrupt=interrupt, timeout_seconds=timeout_seconds)

    def exec_result(
        self, machine_name: Union[str, Machine], instruction_seq: int
    ) -> types.ResultBody:
        """Waits for an instruction's end; its result in foreverVM's form."""
        machine = self._named(machine_name)
        machine.instruction(instruction_seq).wait()
        call = get(at(machine.name, f"/exec/{instruction_seq}/result"))
        return self._transport.ask(call, types.ResultBody)

    def exec_result_stream(
        self, machine_name: Union[str, Machine], instruction_seq: int
    ) -> Iterator[Union[types.Chunk, types.ExecResult]]:
        """Output as it comes, and at last the result in foreverVM's form."""
        machine = self._named(machine_name)
        for progress in machine.instruction(instruction_seq).follow():
            if isinstance(progress, types.Chunk):
                yield progress
        yield (self.exec_result(machine, instruction_seq)).result

    def repl(self, machine_name: Union[str, Machine] = NEW) -> Repl:
        """A conversation with a machine; with a new one unless told."""
        return Repl(self._named(None if machine_name == NEW else machine_name))

    def _named(self, machine: Union[str, Machine, None]) -> Machine:
        if machine is None:
            return self.create_machine()
        return self.machine(machine) if isinstance(machine, str) else machine

    # templates

    def list_templates(self) -> List[types.Template]:
        """Templates, newest first."""
        return (self._transport.ask(get("/v1/template"), types.TemplateList)).templates

    def get_template(self, name: str) -> types.Template:
        """A template by name or digest."""
        return self._transport.ask(get(f"/v1/template/{segment(name)}"), types.Template)

    def build_template(self, recipe: str) -> Iterator[types.BuildLine]:
        """Builds a template from a recipe in TOML; what it says on the way, the template last."""
        body = {"recipe": recipe}
        call = Call("POST", "/v1/template/build", body=body, timeout=BUILD_SILENCE)
        try:
            with self._transport.stream(call) as response:
                for text in response.iter_lines():
                    line = decode(types.BuildLine, json.loads(text))
                    if line.error is not None:
                        raise refusal(500, line.error.to_dict())
                    yield line
                    if line.template is not None:
                        return
        except httpx.TransportError as error:
            raise judge(error)[1] from error
        raise Unreachable("the build's connection broke; it may go on")

    def remove_template(self, name: str) -> None:
        """Removes a template that no machine stands on."""
        self._transport.json(Call("DELETE", f"/v1/template/{segment(name)}"))

    # tokens

    def create_token(
        self,
        name: Optional[str] = None,
        *,
        account: Optional[str] = None,
        scopes: Optional[Sequence[str]] = None,
    ) -> types.MadeToken:
        """Makes a token. Its secret is shown this once."""
        scoped = None if scopes is None else list(scopes)
        body = present({"name": name, "account": account, "scopes": scoped})
        return self._transport.ask(post("/v1/token", body), types.MadeToken)

    def list_tokens(self) -> List[types.Token]:
        """Tokens, oldest first, without their secrets."""
        return (self._transport.ask(get("/v1/token"), types.TokenList)).tokens

    def revoke_token(self, id: str) -> None:
        """Revokes a token; from the next request on it is unknown."""
        self._transport.json(Call("DELETE", f"/v1/token/{segment(id)}"))

    # the store

    def store_stats(self) -> types.StoreStats:
        """What the store takes."""
        return self._transport.ask(get("/v1/store/stats"), types.StoreStats)

    def store_gc(self) -> types.StoreFreed:
        """Frees what no machine, checkpoint or template needs."""
        return self._transport.ask(post("/v1/store/gc"), types.StoreFreed)

    def store_check(self, *, mend: bool = False) -> types.StoreChecked:
        """Looks for damage in all that is in use."""
        call = post("/v1/store/check", {"mend": mend})
        return self._transport.ask(call, types.StoreChecked)
