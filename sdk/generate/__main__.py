"""Writes the SDK types from the OpenAPI document, and the blocking half of the Python SDK.

    python3 sdk/generate            write
    python3 sdk/generate --check    write nothing; fail if something would change
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import blocking
import python
import rust
import schema
import typescript

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs/reference/openapi.json"
AWAITING = ROOT / "sdk/python/src/stasis/_async"


def formatted(text: str) -> str:
    """Formats Rust with rustfmt."""
    command = ["rustfmt", "--edition", "2024", "--config-path", str(ROOT)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"rustfmt: {done.stderr}")
    return done.stdout


def files() -> dict[Path, str]:
    document = json.loads(DOCUMENT.read_text())
    declarations = schema.read(document)
    # calls in Python take arguments; only answers are types
    answers = [one for one in declarations if one.name in schema.said(document)]
    made = {
        ROOT / "sdk/python/src/stasis/types.py": python.write(answers),
        ROOT / "sdk/js/src/types.ts": typescript.write(declarations),
    }
    for name, text in rust.write(declarations, schema.by_tag(document)).items():
        made[ROOT / "sdk/rust/src/types" / name] = formatted(text)
    for source in sorted(AWAITING.glob("*.py")):
        target = AWAITING.with_name("_sync") / source.name
        made[target] = blocking.write(source.read_text(), f"_async/{source.name}")
    return made


def main() -> int:
    stale = [path for path, text in files().items() if not is_same(path, text)]
    names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
    if "--check" in sys.argv[1:]:
        if stale:
            print(f"not what docs/reference/openapi.json says: {names}", file=sys.stderr)
            print("hint: `python3 sdk/generate` writes them anew", file=sys.stderr)
        return 1 if stale else 0
    for path, text in files().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print(f"wrote {names or 'nothing: all was current'}")
    return 0


def is_same(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text() == text


sys.exit(main())
