"""The settings of a client: the address of the service, the token, timeouts and retries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Optional

from . import _local
from ._retry import Retry
from ._version import VERSION

DEFAULT_URL = "http://127.0.0.1:7717"


@dataclass(frozen=True)
class Config:
    base_url: str
    token: Optional[str]
    timeout: float
    retry: Retry = field(default_factory=Retry)

    @classmethod
    def of(
        cls,
        token: Optional[str],
        base_url: Optional[str],
        timeout: float,
        retry: Optional[Retry],
    ) -> Config:
        """The given values, or else the CLI's, or else the service of this host."""
        if token is not None and token.startswith(("http://", "https://")):
            if base_url is not None:
                raise ValueError("the token is an address: write Client(token=..., base_url=...)")
            token, base_url = None, token
        url = (base_url or _local.url() or DEFAULT_URL).rstrip("/")
        return cls(url, token or _local.token_of(url), timeout, retry or Retry())

    def headers(self) -> Dict[str, str]:
        headers = {"user-agent": f"stasis-sdk-python/{VERSION}"}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        return headers
