"""The service this computer uses, as the CLI finds it: configuration, login, data directory."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Dict, Optional
from urllib.parse import urlsplit

LOOPBACK = {"localhost", "127.0.0.1", "::1"}
SETTING = re.compile(
    r"""^(url|token|data_dir)[ \t]*=[ \t]*(?:"([^"\\\n]*)"|'([^'\n]*)')[ \t]*(?:#.*)?\r?$""",
    re.MULTILINE,
)
TABLE = re.compile(r"^[ \t]*\[", re.MULTILINE)


def variable(name: str) -> Optional[str]:
    return os.environ.get(name) or None


def home(name: str, below: str) -> Path:
    """A directory of the XDG convention."""
    given = os.environ.get(name, "")
    return Path(given) if os.path.isabs(given) else Path.home() / below


def settings(path: Path) -> Dict[str, str]:
    """Plain strings at the top of a TOML file; nothing if the file cannot be read."""
    try:
        top = TABLE.split(path.read_text(), maxsplit=1)[0]
    except (OSError, RuntimeError, UnicodeDecodeError):
        return {}
    return {name: double or single for name, double, single in SETTING.findall(top)}


def config() -> Dict[str, str]:
    """Address, token and data directory of the CLI's configuration file."""
    path = variable("STASIS_CONFIG") or home("XDG_CONFIG_HOME", ".config") / "stasis/config.toml"
    return settings(Path(path))


def login() -> Dict[str, str]:
    """Address and token of the stored login; none if other users can read the file."""
    path = home("XDG_CONFIG_HOME", ".config") / "stasis/login.toml"
    try:
        return {} if path.stat().st_mode & 0o077 else settings(path)
    except (OSError, RuntimeError):
        return {}


def url() -> Optional[str]:
    """The address of the service: from the environment, the configuration, or the login."""
    return variable("STASIS_URL") or config().get("url") or login().get("url")


def token_of(url: str) -> Optional[str]:
    """The token for a service: from the environment, from the configuration or the login if they
    name this service, or from the data directory if the service is local."""
    own, kept = config(), login()
    given = variable("STASIS_TOKEN")
    if given is None and own.get("url", url).rstrip("/") == url:
        given = own.get("token")
    if given is None and kept.get("url") == url:
        given = kept.get("token")
    if given or urlsplit(url).hostname not in LOOPBACK:
        return given or None
    try:
        data = variable("STASIS_DATA_DIR") or own.get("data_dir")
        data = data or str(home("XDG_DATA_HOME", ".local/share") / "stasis")
        return Path(data, "token").read_text().strip() or None
    except (OSError, RuntimeError, UnicodeDecodeError):
        return None
