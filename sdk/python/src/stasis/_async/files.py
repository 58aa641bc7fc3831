"""Files of a machine, and its artifacts."""

from __future__ import annotations

import json
import os
import stat
from os import PathLike
from pathlib import Path
from typing import AsyncIterator, BinaryIO, Optional, Union

import httpx

from .. import types
from .._json import decode
from .._requests import Call, at, get, present, span, word
from .._sse import Parser
from ..errors import StasisError
from .transport import AsyncTransport, judge

PIECE = 1 << 20
OUT_OF_RANGE = 416


class AsyncFiles:
    """Files of a machine. Relative paths start at its home."""

    def __init__(self, transport: AsyncTransport, machine: str) -> None:
        self._transport = transport
        self._machine = machine

    async def write(
        self,
        path: str,
        content: Union[bytes, str],
        *,
        mode: Optional[str] = None,
        durability: Optional[types.Durability] = None,
    ) -> types.FileInfo:
        """Writes a file and replaces an existing one. `mode` is octal, such as "755"."""
        data = content.encode() if isinstance(content, str) else content
        return await self._put(path, data, mode, durability, repeatable=True)

    async def upload(
        self,
        local: Union[str, PathLike[str]],
        path: str,
        *,
        mode: Optional[str] = None,
        durability: Optional[types.Durability] = None,
    ) -> types.FileInfo:
        """Uploads a local file in pieces, with its permissions by default."""
        with open(local, "rb") as file:
            given = mode or format(os.fstat(file.fileno()).st_mode & 0o777, "o")
            return await self._put(path, pieces(file), given, durability, repeatable=False)

    async def upload_dir(self, local: Union[str, PathLike[str]], path: str = "") -> int:
        """Uploads a local directory with its contents; returns the number of files.

        Links and empty directories are left out.
        """
        count = 0
        for here in sorted(Path(local).iterdir()):
            about = here.lstat()
            there = f"{path}/{here.name}" if path else here.name
            if stat.S_ISDIR(about.st_mode):
                count += await self.upload_dir(here, there)
            elif stat.S_ISREG(about.st_mode):
                await self.upload(here, there)
                count += 1
        return count

    async def _put(
        self,
        path: str,
        content: Union[bytes, AsyncIterator[bytes]],
        mode: Optional[str],
        durability: Optional[types.Durability],
        repeatable: bool,
    ) -> types.FileInfo:
        query = present({"path": path, "mode": mode, "durability": durability})
        where = at(self._machine, "/file")
        call = Call("PUT", where, content=content, query=query, repeatable=repeatable)
        return await self._transport.ask(call, types.FileInfo)

    async def read(self, path: str, start: int = 0, end: Optional[int] = None) -> bytes:
        """The bytes of a file, or those from `start` up to `end`."""
        return b"".join([piece async for piece in self.stream(path, start, end)])

    async def read_text(self, path: str) -> str:
        return (await self.read(path)).decode()

    async def download(self, path: str, local: Union[str, PathLike[str]]) -> None:
        """Downloads a file in pieces. The local file gets its name when it is complete."""
        await save(self.stream(path), local)

    async def download_dir(self, path: str, local: Union[str, PathLike[str]]) -> int:
        """Downloads a directory with its contents; returns the number of files.

        Links are left out.
        """
        Path(local).mkdir(parents=True, exist_ok=True)
        count = 0
        async for info in self.list(path):
            name = info.path.rpartition("/")[2]
            # a name from a machine is never a way out of the directory here
            if name in ("", ".", "..") or os.path.basename(name) != name:
                continue
            if info.kind == "directory":
                count += await self.download_dir(info.path, Path(local, name))
            elif info.kind == "file":
                await self.download(info.path, Path(local, name))
                count += 1
        return count

    def stream(
        self, path: str, start: int = 0, end: Optional[int] = None
    ) -> AsyncIterator[bytes]:
        """The bytes of a file as they arrive, over as many connections as necessary."""
        call = get(at(self._machine, "/file"), path=path)
        return resumed(self._transport, call, start, end)

    async def list(
        self, path: str = "", *, page_size: Optional[int] = None
    ) -> AsyncIterator[types.FileInfo]:
        """The entries of a directory, by name."""
        cursor: Optional[str] = None
        while True:
            where = at(self._machine, "/files")
            asked = get(where, path=path, limit=page_size, cursor=cursor)
            page = await self._transport.ask(asked, types.FileList)
            for info in page.files:
                yield info
            cursor = page.next
            if cursor is None:
                return

    async def stat(self, path: str) -> types.FileInfo:
        """Metadata of a file; links are not followed."""
        asked = get(at(self._machine, "/file/stat"), path=path)
        return await self._transport.ask(asked, types.FileInfo)

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        """Removes a file or a directory; a non-empty directory only with `recursive`."""
        query = {"path": path, "recursive": word(recursive)}
        await self._transport.json(Call("DELETE", at(self._machine, "/file"), query=query))

    async def watch(
        self, path: str = "", *, recursive: bool = False
    ) -> AsyncIterator[types.FileEvent]:
        """Changes of a file, or in a directory and, with `recursive`, all below it, until it is
        removed.

        `watching` comes first, and again after a broken connection: list the directory then.
        """
        where = at(self._machine, "/file/watch")
        call, broken = get(where, path=path, recursive=word(recursive)), 0
        while True:
            try:
                async with self._transport.stream(call) as response:
                    parser = Parser()
                    async for piece in response.aiter_bytes():
                        broken = 0
                        for event in parser.feed(piece):
                            change = decode(types.FileEvent, json.loads(event.data))
                            yield change
                            if change.kind == "gone":
                                return
                raise httpx.RemoteProtocolError("the stream ended before what is watched")
            except (httpx.TransportError, StasisError) as error:
                await self._transport.breathe(error, broken)
                broken += 1


async def pieces(file: BinaryIO) -> AsyncIterator[bytes]:
    while piece := file.read(PIECE):
        yield piece


async def resumed(
    transport: AsyncTransport, call: Call, start: int, end: Optional[int]
) -> AsyncIterator[bytes]:
    """The bytes of a resource that does not change meanwhile."""
    position, broken = start, 0
    while True:
        part = Call("GET", call.path, query=call.query, headers=span(position, end))
        try:
            async with transport.stream(part) as response:
                async for piece in response.aiter_bytes():
                    position, broken = position + len(piece), 0
                    yield piece
            return
        except (httpx.TransportError, StasisError) as error:
            # it broke after its last byte
            if getattr(error, "status", None) == OUT_OF_RANGE and position > start:
                return
            await transport.breathe(error, broken)
            broken += 1


async def save(content: AsyncIterator[bytes], local: Union[str, PathLike[str]]) -> None:
    """Writes received data to a file, which gets its name when it is complete."""
    part = f"{os.fspath(local)}.part"
    with open(part, "wb") as file:
        try:
            async for piece in content:
                file.write(piece)
        except BaseException:
            os.unlink(part)
            raise
    os.replace(part, local)


async def download(transport: AsyncTransport, call: Call) -> AsyncIterator[bytes]:
    """The bytes of a resource that is generated while it is read, over one connection."""
    try:
        async with transport.stream(call) as response:
            async for piece in response.aiter_bytes():
                yield piece
    except httpx.TransportError as error:
        raise judge(error)[1] from error
