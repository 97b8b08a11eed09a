#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make the README's pictures from a real run: docs/pictures/flamegraph.svg and top.svg.

usage: scripts/tools/pictures.py [PYTHON]    PYTHON has torch; /usr/bin/python3 by default

Needs a build, and pyte (python3-pyte), which knows what a terminal would show.
"""
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path
from xml.sax.saxutils import escape

ROOT = Path(__file__).resolve().parents[2]
PROBING = ROOT / "build/release/probing"
PICTURES = ROOT / "docs/pictures"
COLUMNS, LINES = 96, 34
CELL, LINE = 7.8, 17  # px of a letter of 13 px
PALETTE = {"default": "#d8dee9", "black": "#4c566a", "red": "#e06c75", "green": "#98c379",
           "brown": "#e5c07b", "blue": "#61afef", "magenta": "#c678dd", "cyan": "#56b6c2",
           "white": "#eceff4"}


def without_slivers(svg):
    """The same picture without the boxes that are narrower than 3 px: nobody can read them."""
    def wide(box):
        return box[0] if float(re.search(r'<rect x="[^"]*" y="[^"]*" width="([^"]*)"',
                                         box[0])[1]) >= 3 else ""
    return re.sub(r"<g><title>.*?</g>\n?", wide, svg, flags=re.S)


def screen_of(command, seconds):
    """The screen of a command that is left alone for so long."""
    import pyte
    screen = pyte.Screen(COLUMNS, LINES)
    stream = pyte.ByteStream(screen)
    child, fd = pty.fork()
    if child == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execv(command[0], command)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("4H", LINES, COLUMNS, 0, 0))
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if select.select([fd], [], [], 0.2)[0]:
            stream.feed(os.read(fd, 65536))
    lines = [[screen.buffer[y][x] for x in range(COLUMNS)] for y in range(LINES)]
    os.write(fd, b"q")
    os.close(fd)
    os.waitpid(child, 0)
    return lines


def spans(line):
    """Pieces of a line that look the same: column, text, colours."""
    at = 0
    while at < len(line):
        end = at
        look = (line[at].fg, line[at].bg, line[at].bold, line[at].reverse)
        while end < len(line) and (line[end].fg, line[end].bg, line[end].bold,
                                   line[end].reverse) == look:
            end += 1
        yield at, "".join(cell.data for cell in line[at:end]), look
        at = end


def svg_of(lines, title):
    """A terminal's screen as SVG."""
    while lines and not "".join(cell.data for cell in lines[-1]).strip():
        lines.pop()
    width, height = COLUMNS * CELL + 24, len(lines) * LINE + 46
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" '
           'font-family="DejaVu Sans Mono,Menlo,Consolas,monospace" font-size="13">' %
           (width, height),
           '<rect width="100%" height="100%" rx="6" fill="#22272e"/>',
           '<text x="12" y="20" fill="#8b949e">$ %s</text>' % escape(title)]
    for y, line in enumerate(lines):
        for x, text, (fg, _, bold, reverse) in spans(line):
            left, top = 12 + x * CELL, 30 + y * LINE
            colour = PALETTE.get(fg, "#" + fg if re.fullmatch("[0-9a-f]{6}", fg) else "#d8dee9")
            if reverse:
                out.append('<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>' %
                           (left, top, len(text) * CELL, LINE, colour))
                colour = "#22272e"
            if text.strip():
                out.append('<text x="%.1f" y="%d" fill="%s"%s textLength="%.1f" '
                           'xml:space="preserve">%s</text>' %
                           (left, top + 13, colour, ' font-weight="bold"' * bold,
                            len(text) * CELL, escape(text)))
    return "\n".join(out + ["</svg>", ""])


def main(python):
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(PROBING_DATA_DIR=folder, OMP_NUM_THREADS="1")
        loop = subprocess.Popen([python, "-u", str(ROOT / "tests/train/tiny_transformer.py")],
                                stdout=subprocess.PIPE, text=True)
        try:
            loop.stdout.readline()  # the first step is done
            ask = [str(PROBING), "-t", str(loop.pid)]
            subprocess.run(ask + ["inject", "--plugin", "torch"], check=True)
            flame = Path(folder) / "flamegraph.svg"
            subprocess.run(ask + ["flamegraph", "-s", "10", "--width", "900", "-o", str(flame)],
                           check=True)
            (PICTURES / "flamegraph.svg").write_text(without_slivers(flame.read_text()))
            seen = screen_of(ask + ["top"], 10)
            (PICTURES / "top.svg").write_text(svg_of(seen, "probing -t %d top" % loop.pid))
        finally:
            loop.kill()
            loop.wait()


if __name__ == "__main__":
    main(*sys.argv[1:] or ["/usr/bin/python3"])
