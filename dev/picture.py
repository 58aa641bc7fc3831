#!/usr/bin/env python3
"""Draws a terminal picture (SVG) of a session with the real program.

    python3 dev/picture.py target/release/stasis docs/terminal.svg

The commands below are run in a separate home, one after another, and their output is drawn
unchanged. STASIS_PICTURE_DATA names a data directory with the default template, to save building
it.
"""

import html
import os
import pathlib
import subprocess
import sys
import tempfile

SESSION = [
    "stasis machine new work --durability local",
    "stasis exec work 'prices = [3, 1, 2]'",
    "stasis exec work 'prices.sort(); prices'",
    "stasis undo work",
    "stasis exec work 'prices'",
    "stasis branch work --name try",
    "stasis exec try 'prices.append(9); sum(prices)'",
    "stasis exec work 'sum(prices)'",
    "stasis compare work try",
    "stasis machine swap work",
    "stasis exec work 'prices, \"still here\"'",
    "stasis explore work -c 'prices += [5]' -c 'prices += [7]' --score 'sum(prices)'",
    "stasis exec work 'prices'",
    "stasis tree",
]

WIDTH, LINE, SIZE, MARGIN = 880, 20, 14, 16
COLUMNS = 100


def run(session, program, home):
    """Each command with its output lines."""
    path = f"{program.parent}:{os.environ['PATH']}"
    env = {"PATH": path, "HOME": str(home), "NO_COLOR": "1", "TERM": "dumb"}
    data = os.environ.get("STASIS_PICTURE_DATA")
    if data:
        env["STASIS_DATA_DIR"] = data
    try:
        for command in session:
            said = subprocess.run(
                ["bash", "-c", command], env=env, cwd=home, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True, check=False,
            )
            if said.returncode:
                sys.exit(f"{command}: exit {said.returncode}\n{said.stdout}")
            yield command, said.stdout.splitlines()
    finally:
        subprocess.run(["bash", "-c", "stasis stop"], env=env, cwd=home, capture_output=True)


def draw(session):
    rows = []
    for command, lines in session:
        rows.append(f'<tspan class="prompt">$ </tspan>{html.escape(command)}')
        rows += [f'<tspan class="said">{html.escape(line[:COLUMNS])}</tspan>' for line in lines]
    height = MARGIN * 2 + LINE * (len(rows) + 1)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}"'
        f' viewBox="0 0 {WIDTH} {height}" role="img" aria-label="A session with stasis">',
        "<style>text { font: %dpx ui-monospace, Menlo, Consolas, monospace; fill: #e6edf3;"
        " white-space: pre } .prompt { fill: #7ee787 } .said { fill: #9da7b3 }</style>" % SIZE,
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#0d1117"/>',
    ]
    for number, row in enumerate(rows):
        y = MARGIN + LINE * (number + 1)
        out.append(f'<text x="{MARGIN}" y="{y}" xml:space="preserve">{row}</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    program, target = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    with tempfile.TemporaryDirectory() as home:
        target.write_text(draw(run(SESSION, program, pathlib.Path(home))))


main()
