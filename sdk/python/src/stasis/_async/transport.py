"""Requests over one connection pool: retried where that is safe, with typed errors."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import Any, AsyncIterator, Optional, Tuple, Type, TypeVar

import httpx

from .._config import Config
from .._json import Model, decode
from .._requests import Call
from .._retry import Trouble, is_worth, seconds
from ..errors import ProtocolError, StasisError, Unreachable, refusal

M = TypeVar("M", bound=Model)

NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
POOL = httpx.Limits(max_connections=None, max_keepalive_connections=32)


class AsyncTransport:
    def __init__(self, config: Config, transport: Optional[httpx.AsyncBaseTransport]) -> None:
        self.config = config
        self._http = httpx.AsyncClient(
            base_url=config.base_url,
            headers=config.headers(),
            timeout=httpx.Timeout(config.timeout, connect=min(10.0, config.timeout), pool=None),
            limits=POOL,
            transport=transport,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def ask(self, call: Call, kind: Type[M]) -> M:
        """The answer to a request, as a type."""
        return decode(kind, await self.json(call))

    async def json(self, call: Call) -> Any:
        tries = 0
        while True:
            try:
                response = await self._http.send(self._request(call))
                return read_json(response)
            except (httpx.TransportError, StasisError) as error:
                trouble, failure = judge(error)
            tries += 1
            if tries >= self.config.retry.attempts or not is_worth(trouble, call.repeatable):
                raise failure
            await asyncio.sleep(self.config.retry.pause(tries - 1, trouble.retry_after))

    @asynccontextmanager
    async def stream(self, call: Call) -> AsyncIterator[httpx.Response]:
        """A response that is read as it arrives. Sent once: the reader knows where to resume."""
        response = await self._http.send(self._request(call), stream=True)
        try:
            if response.status_code >= 400:
                await response.aread()
                read_json(response)
            yield response
        finally:
            await response.aclose()

    async def lines(self, call: Call) -> AsyncIterator[str]:
        """Lines of a response that cannot be requested again."""
        try:
            async with self.stream(call) as response:
                async for line in response.aiter_lines():
                    yield line
        except httpx.TransportError as error:
            raise judge(error)[1] from error
        raise Unreachable("the connection broke before the end; the service may go on")

    async def breathe(self, error: Exception, broken: int) -> None:
        """Waits before a broken stream is resumed; raises after too many attempts."""
        trouble, failure = judge(error)
        retry = self.config.retry
        if broken >= retry.resumes or not is_worth(trouble, repeatable=True):
            raise failure
        await asyncio.sleep(retry.pause(broken, trouble.retry_after))

    def _request(self, call: Call) -> httpx.Request:
        content, headers = call.content, dict(call.headers)
        if call.body is not None:
            content = json.dumps(call.body).encode()
            headers["content-type"] = "application/json"
        request = self._http.build_request(
            call.method, call.path, params=dict(call.query), content=content, headers=headers
        )
        if call.timeout is not None:
            request.extensions["timeout"]["read"] = call.timeout
        return request


def read_json(response: httpx.Response) -> Any:
    """The body of a successful response; otherwise raises its error."""
    try:
        body = response.json()
    except ValueError:
        body = None
    if response.status_code >= 400:
        failure = refusal(response.status_code, body)
        failure.retry_after = seconds(response.headers.get("retry-after"))
        raise failure
    if body is None or response.status_code >= 300:
        said = f"an answer with status {response.status_code} that is not JSON"
        raise ProtocolError(said, hint="is the address that of a Stasis service?")
    return body


def judge(error: Exception) -> Tuple[Trouble, StasisError]:
    """The fault of a request, for the retry decision and for the caller."""
    if isinstance(error, StasisError):
        return Trouble(status=error.status or 0, retry_after=error.retry_after), error
    sent = not isinstance(error, NEVER_SENT)
    said = str(error) or type(error).__name__
    failure = Unreachable(f"no answer from the service: {said}", hint="does `stasis serve` run?")
    failure.__cause__ = error
    return Trouble(sent=sent), failure
