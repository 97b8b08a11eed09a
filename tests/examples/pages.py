# SPDX-License-Identifier: Apache-2.0
"""The commands that the pages of docs/ tell a reader to type, and the answers that they show."""
import re
import shlex

from world import ROOT

PAGES = {path.name: path for path in sorted((ROOT / "docs").glob("*.md"))}
PAGES["README"] = ROOT / "README.md"  # docs/ has one, too: the list of the pages
PAGES["examples"] = ROOT / "examples" / "README.md"


class Block:
    """A block of code: its line in the page, what stands behind ```, its lines without indent."""

    def __init__(self, page, line, language, lines):
        self.page, self.line, self.language, self.lines = page, line, language, lines


class Said:
    """A command, and the lines that the page shows of its answer."""

    def __init__(self, page, line, command, shown):
        self.page, self.line, self.command, self.shown = page, line, command, shown

    def __str__(self):
        return "%s:%d: %s" % (self.page, self.line, self.command)


def blocks(page):
    lines, found, at = PAGES[page].read_text().split("\n"), [], 0
    while at < len(lines):
        fence = re.match(r"```(\w*)$", lines[at])
        first, empty_before = at, at == 0 or not lines[at - 1].strip()
        if fence:
            at = lines.index("```", at + 1)
            found.append(Block(page, first + 2, fence[1], lines[first + 1:at]))
            at += 1
        elif lines[at].startswith("    ") and empty_before:
            while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
                at += 1
            body = [line[4:] for line in lines[first:at]]
            while not body[-1]:
                body.pop()
            found.append(Block(page, first + 1, "", body))
        else:
            at += 1
    return found


def is_whole(command):
    try:
        shlex.split(command, comments=True)
        return not command.endswith("\\")
    except ValueError:
        return False


PROMPT = r"(?:[\w-]*\$ +|# (?=probing ))(.*)"
BARE = r"((?:[A-Z_]+=\S+ )?(?:probing [^0-9]|python3? [^ ]|scripts/|tests/|" \
       r"(?:curl|cc|scons|docker|kubectl|srun|sudo|pip|ssh|export|echo|grep|bpftrace) ).*)"
NAMES = r"query|watch|config|flamegraph|torch|memory|backtrace|trace|eval|export|plugin|inject|" \
        r"cluster|debug|script|top|repl|eject|describe|tables|nccl|gpu|cuda|ship|list|gc|doctor"


def commands(block):
    """The commands of a block: lines behind a prompt; where there is none, all that are one."""
    if block.language not in ("", "text"):
        return []
    prompts = any(re.match(PROMPT, line) for line in block.lines)
    found, at = [], 0
    while at < len(block.lines):
        begin = re.match(PROMPT if prompts else BARE, block.lines[at])
        first = at
        at += 1
        if begin:
            command = begin[1]
            while not is_whole(command):
                command += "\n" + block.lines[at].lstrip()
                at += 1
            found.append(Said(block.page, block.line + first, command, []))
        elif found:
            found[-1].shown.append(block.lines[first])
    return found


def text_lines(page):
    """(number, line) outside of blocks."""
    inside = set()
    for block in blocks(page):
        inside.update(range(block.line, block.line + len(block.lines)))
    for number, line in enumerate(PAGES[page].read_text().split("\n"), 1):
        if number not in inside:
            yield number, line


def inline(page):
    """Commands in the text: `probing ...`, and `torch --last 10s`, where it is left out."""
    found = []
    for number, line in text_lines(page):
        for text in re.findall(r"`([^`]+)`", line):
            text = text.replace("\\|", "|")
            if re.match(r"(?:[A-Z_]+=\S+ )?probing ", text):
                found.append(Said(page, number, text, []))
            elif re.match(r"(?:-t \S+ )?(?:%s) [^=]" % NAMES, text):
                found.append(Said(page, number, "probing " + text, []))
    return found


def statements(page):
    """Statements of SQL that stand alone: in blocks, and whole ones in the text."""
    found = []
    for block in blocks(page):
        text = []
        for line in block.lines if block.language in ("", "text", "sql") else []:
            if re.match(r"select ", line):
                found.append(Said(page, block.line, line, []))
                text = found[-1:]
            elif text and re.match(r"(from|where|group|order|join) ", line):
                text[0].command += "\n" + line
            else:
                text = []
    for number, line in text_lines(page):
        for text in re.findall(r"`(select [^`]+ from [^`]+|describe [^` ]+)`", line):
            found.append(Said(page, number, text, []))
    return found


def everything(page):
    found = [said for block in blocks(page) for said in commands(block)] + inline(page)
    for said in statements(page):
        said.command = 'probing query "%s"' % said.command
        found.append(said)
    return sorted(found, key=lambda said: said.line)
