"""What a client is told once: where the service is, who asks, how patient to be."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Dict, Optional

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
        """What was given, or else `STASIS_TOKEN` and `STASIS_URL`."""
        url = base_url or os.environ.get("STASIS_URL") or DEFAULT_URL
        token = token or os.environ.get("STASIS_TOKEN") or None
        return cls(url.rstrip("/"), token, timeout, retry or Retry())

    def headers(self) -> Dict[str, str]:
        headers = {"user-agent": f"stasis-sdk-python/{VERSION}"}
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        return headers
