"""Generates the blocking half of the Python SDK from the async half: the same text without
`await`."""

from __future__ import annotations

import re

NOTE = "# Written by `python3 sdk/generate` from {source}; change that instead.\n\n"

WORDS = [
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait\s+", ""),
    (r"\bAsyncIterator\b", "Iterator"),
    (r"\basynccontextmanager\b", "contextmanager"),
    (r"\bAsyncClient\b", "Client"),
    (r"\bAsync(Attempt|Files|Instruction|Machine|Past|Repl|Transport)\b", r"\1"),
    (r"\bhttpx\.AsyncBaseTransport\b", "httpx.BaseTransport"),
    (r"\b__aenter__\b", "__enter__"),
    (r"\b__aexit__\b", "__exit__"),
    (r"\baclose\b", "close"),
    (r"\baiter_(bytes|lines)\b", r"iter_\1"),
    (r"\baread\b", "read"),
    (r"\basyncio\.sleep\b", "time.sleep"),
    (r"^import asyncio$", "import time"),
    (r"\basyncio\.CancelledError\b", "KeyboardInterrupt"),
    (r"\b_async\b", "_sync"),
]


def write(text: str, source: str) -> str:
    for pattern, word in WORDS:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    # a block that only one half has
    text = re.sub(r"^ *# awaiting only:\n(?:.*\n)*? *# end\n", "", text, flags=re.MULTILINE)
    if "time.sleep" not in text:
        text = text.replace("import time\n", "")
    return NOTE.format(source=source) + text
