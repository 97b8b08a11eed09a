#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The house style's rules that a program can judge.

usage: check_style.py [--notes] [FILE...]      all sources of the checkout by default
       check_style.py --write                  keep the counts of word_counts.txt where they fell
       check_style.py --headless               the headless comments, each with its place
       check_style.py --one-word               the functions whose name is one word

Fails on: no SPDX line first, no sentence that says what the file is, `//` comments, tabs, lines
over 100 columns, blanks at a line's end, banned functions, `sizeof x`, a header without a guard of
its own, an own header that is not included first, calls in [signal] or [child] functions of core
and sdk/lib that are not on the list below; in tests in Python: two of one name in a file, where the
first would never run, and a sleep that is no part of a loop and gives no reason.  With --notes it
also names functions over 60 lines, which need a reason but no permission.

Without FILE it also counts, and compares with word_counts.txt, which may only fall: headless
comments (four words and more, the first of them What, Of, Who, Whose, Where or Those) and functions
of the product whose name is one word.  Subjects of commits since SUBJECTS_SINCE are
`area: imperative`, of at most 72 characters.
"""
import ast
import datetime
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOP = ("include", "core", "sdk", "plugins", "cli", "tests", "scripts")
COLUMNS = 100
SCREEN_LINES = 60
BANNED = ("strcpy strcat sprintf vsprintf strtok gets atoi atol atof strtol system popen exit "
          "abort signal sleep usleep rand setenv putenv basename localtime fork dup "
          # exit() takes the buffers of streams away, also from another thread that is writing
          "fopen fdopen open_memstream").split()
BANNED_IN = ("core/", "plugins/", "sdk/lib/")
SIGNAL_IN = ("core/", "sdk/lib/")
# Calls that a [signal] or [child] function may make beside its kind: no lock, no allocation.
SIGNAL_SAFE = ("memcpy memset memmove memcmp memchr memrchr strlen strnlen "
               "clock_gettime write read close fcntl syscall sizeof offsetof __builtin_\\w+ "
               "atomic_\\w+ "
               "_Atomic __atomic_\\w+ load_u\\w+ "
               "store_u\\w+ getpid tgkill sigaction sigprocmask pthread_self pthread_sigmask "
               "raise _exit poll open openat fstat mmap munmap madvise pread pwrite lseek "
               "process_vm_readv timer_settime __\\w+__ _mm_\\w+ __rdtsc typeof __typeof__ "
               "static_assert _Static_assert _Alignof __real_\\w+").split()
KEYWORDS = "if for while switch return do else case".split()
# A comment that begins so has no subject: "What X does ...", "Of those that ...".
HEADLESS = "What Of Who Whose Where Those".split()
HEADLESS_WORDS = 4  # and more: a shorter one is a label
WORD_COUNTS = os.path.join(ROOT, "scripts", "tools", "word_counts.txt")
SUBJECTS_SINCE = "2026-11-28T22:30:00+00:00"  # older ones were written before there was a rule
SUBJECT_MAX = 72
# A subject that begins so describes; an imperative does not.
NO_VERB = ("a an the what who whose of those where which it its this that these there here no not "
           "one two each every all some any is are was were both only").split()
# Rows of a table, for the one file that includes them.
UNGUARDED = ("cli/inject/seccomp_calls.h", "plugins/python/inspect/offsets_table.h")


def blanked(text):
    """C source with comments and the insides of strings as blanks; lines stay where they were."""
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''

    def blank(match):
        return re.sub(r"[^\n]", " ", match[0])

    return re.sub(pattern, blank, text, flags=re.S)


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def check_form(path, text):
    """Rules that hold for every kind of file."""
    head = text.split("\n")[:3]
    first = head[1] if head[0].startswith("#!") and len(head) > 1 else head[0]
    if "SPDX-License-Identifier: Apache-2.0" not in first:
        yield 1, "the first line is not the SPDX line"
    for number, line in enumerate(text.split("\n"), 1):
        if "\t" in line:
            yield number, "a tab"
        if len(line) > COLUMNS:
            yield number, "%d columns (at most %d)" % (len(line), COLUMNS)
        if line.rstrip() != line:
            yield number, "blanks at the end of the line"
    if not text.endswith("\n"):
        yield len(text.split("\n")), "the last line is not ended"


def check_opening(text):
    """The first comment says in one sentence what the file is."""
    comment = re.match(r"/\*(.*?)\*/", text, flags=re.S)
    words = re.sub(r"SPDX\S*|Apache\S*|[*\s]+", " ", comment[1]) if comment else ""
    if len(words.split()) < 4:
        yield 1, "the opening comment does not say what the file is"


def check_comments(text):
    outside = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',
                     lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S)
    for match in re.finditer(r"//", outside):
        yield line_of(outside, match.start()), "a // comment"


def check_banned(path, code):
    if not path.startswith(BANNED_IN) or path.endswith(("_test.c", "_test.h")):
        return
    for match in re.finditer(r"(?<![\w.>])(%s)\s*\(" % "|".join(BANNED), code):
        yield line_of(code, match.start()), "%s() is banned (house style, rule 39)" % match[1]


def check_sizeof(code):
    for match in re.finditer(r"\bsizeof (?=[\w*&(])", code):
        yield line_of(code, match.start()), "sizeof without parentheses right behind it"


def guard_of(text):
    """The macro that keeps a header from being read twice, or None."""
    found = re.search(r"^#ifndef (\w+)\n#define (\w+)\n", text, flags=re.M)
    return found[1] if found and found[1] == found[2] else None


def check_guard(path, text, guards):
    """guards: {macro: the header that has it} of all headers; one of two would be empty."""
    guard = guard_of(text)
    if guard is None and path not in UNGUARDED:
        yield 1, "a header without #ifndef and #define of one name"
    elif guard and guards.get(guard, path) != path:
        yield 1, "%s guards %s, too" % (guard, guards[guard])


def check_own_header(path, text):
    """x.c includes x.h first: so each header is once compiled with nothing before it."""
    names = re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', text, flags=re.M)
    own = [n for n in names if n.endswith(".h") and ("/" + path[:-2]).endswith("/" + n[:-2])]
    if own and names[0] != own[0]:
        yield 1, "%s is not the first include" % own[0]


def check_test(text):
    """Judge a test in Python.  A sleep in a loop waits for something; other sleeps say why."""
    tree, lines = ast.parse(text), text.split("\n")
    for scope in ast.walk(tree):
        names = [n for n in getattr(scope, "body", ()) if hasattr(n, "name")] \
            if isinstance(scope, (ast.Module, ast.ClassDef)) else []
        for at, node in enumerate(names):
            if node.name.startswith(("test_", "Test")) and \
                    node.name in [n.name for n in names[:at]]:
                yield node.lineno, "%s stands here twice: the first never runs" % node.name
    looped = {id(n) for loop in ast.walk(tree) if isinstance(loop, (ast.While, ast.For))
              for n in ast.walk(loop)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node) not in looped and "#" not in \
                lines[node.lineno - 1] and getattr(node.func, "attr", "") == "sleep":
            yield node.lineno, "a sleep for luck: wait for what it waits for, or say why not"


def functions(code):
    """(name, line, body) of each function of a blanked source in house layout."""
    pattern = r"^(?:[A-Za-z_][^;{}#=]*?)\b(\w+)\s*\([^;{}]*\)[^;{}()=]*\n\{\n(.*?)^\}"
    for match in re.finditer(pattern, code, flags=re.M | re.S):
        yield match[1], line_of(code, match.start(2)), match[2]


def declared_name(declaration):
    """The function a declaration or definition names, or None."""
    code = re.sub(r"__attribute__\s*\(\(.*?\)\)", "", blanked(declaration), flags=re.S)
    found = re.search(r"(\w+)\s*\(", code)
    return found[1] if found and "=" not in code[:found.start()] else None


def tagged(text):
    """Functions whose comment ends in [signal] or [child]: it stands before them or beside them."""
    names = set()
    for comment in re.finditer(r"/\*.*?\*/", text, flags=re.S):
        if not re.search(r"\[(?:signal|child)\]\s*\*/$", comment[0]):
            continue
        start = text.rfind("\n", 0, comment.start()) + 1
        beside = text[start:comment.start()].strip()
        if beside:
            before = blanked(text[:comment.start()]).rstrip().rstrip(";")
            before = re.sub(r"^[ \t]*#.*$", "", before, flags=re.M)
            declaration = re.split(r"[;{}]", before)[-1]
        else:
            declaration = re.split(r"[;{]", text[comment.end():], maxsplit=1)[0]
            declaration = re.sub(r"^[ \t]*#.*$", "", declaration, flags=re.M)
        names.add(declared_name(declaration))
    return names - {None}


def check_signal(code, safe_names):
    """Calls in [signal] functions of one file, and in the static functions they use."""
    code = re.sub(r"^[ \t]*#.*$", "", code, flags=re.M)  # conditions are not calls
    bodies = {name: (line, body) for name, line, body in functions(code)}
    todo = [name for name in bodies if name in safe_names]
    seen = set(todo)
    allowed = re.compile("(?:%s)$" % "|".join(SIGNAL_SAFE + KEYWORDS))
    while todo:
        name = todo.pop()
        line, body = bodies[name]
        for match in re.finditer(r"(?<![\w.>])([A-Za-z_]\w*)\s*\(", body):
            callee = match[1]
            if callee in safe_names or callee.isupper() or allowed.match(callee):
                continue
            if callee not in bodies:
                yield line + body.count("\n", 0, match.start()), \
                    "%s() is [signal] and calls %s()" % (name, callee)
            elif callee not in seen:
                seen.add(callee)
                todo.append(callee)


def check_long(code):
    for name, line, body in functions(code):
        lines = body.count("\n")
        if lines > SCREEN_LINES:
            yield line, "note: %s() has %d lines" % (name, lines)


def comments(path, text):
    """(line, text on one line) of each comment and each docstring; comments of lines in a row are
    one."""
    if path.endswith((".c", ".h")):
        pattern = r"/\*(.*?)\*/"
    elif path.endswith(".lua"):
        pattern = r"^[ \t]*--(?!\[)((?:.*\n[ \t]*--(?!\[))*.*)"
    else:
        pattern = r'^[ \t]*#(?!!)((?:.*\n[ \t]*#)*.*)|^[ \t]*"""(.*?)"""'
    flags = re.M | (re.S if path.endswith((".c", ".h")) else 0)
    for match in re.finditer(pattern, text, flags=flags):
        words = " ".join(filter(None, match.groups()))
        yield line_of(text, match.start()), re.sub(r"\s*(?:\n[ \t]*(?:\*|#|--)?)?\s+", " ",
                                                   words).strip()


def headless(path, text):
    """Lines of the comments without a subject."""
    for line, comment in comments(path, text):
        words = comment.split()
        if len(words) >= HEADLESS_WORDS and words[0] in HEADLESS:
            yield line, comment


def one_word(path, text):
    """Functions of the product whose name is a single word."""
    if path.endswith(".c") and not path.startswith("tests/") and not path.endswith("_test.c"):
        pattern = r"^(?!typedef|#|\})[A-Za-z_][^;{}#=()]*?\b(\w+)\([^;{}]*\)[^;{}()=]*\n\{"
        code = blanked(text)
        for match in re.finditer(pattern, code, flags=re.M):
            if "_" not in match[1]:
                yield line_of(code, match.start(1)), match[1]


COUNTED = {"headless comments": headless, "one-word functions": one_word}


def counted(paths):
    """{what: [path:line: text]} of all that word_counts.txt counts."""
    found = {what: [] for what in COUNTED}
    for path in paths:
        with open(os.path.join(ROOT, path), errors="replace") as source:
            text = source.read()
        for what, look in COUNTED.items():
            found[what] += ["%s:%d: %s" % (path, line, words) for line, words in look(path, text)]
    return found


def allowed_counts():
    """{what: number} of word_counts.txt."""
    with open(WORD_COUNTS) as source:
        return {what: int(number) for what, _, number in
                (line.strip().rpartition(" ") for line in source if not line.startswith("#"))}


def check_counts(found, allowed):
    for what, places in sorted(found.items()):
        if len(places) > allowed[what]:
            yield "%d %s, and word_counts.txt allows %d (check_style.py --%s names them)" % (
                len(places), what, allowed[what], what.rsplit(" ", 1)[0])


def write_counts(found):
    """Only downwards: a larger number is edited by hand, and seen in the review."""
    allowed = allowed_counts()
    with open(WORD_COUNTS, "w") as out:
        out.write("# What check_style.py counts: may only fall (check_style.py --write).\n")
        out.writelines("%s %d\n" % (what, min(len(places), allowed[what]))
                       for what, places in sorted(found.items()))


def check_subject(subject):
    """Why a commit's first line is not `area: imperative`, or None."""
    area, _, rest = subject.partition(": ")
    if not re.match(r"[\w./+-]+(?:, [\w./+-]+)*$", area) or not rest:
        return "is not `area: imperative`"
    if re.split(r"\W", rest)[0].lower() in NO_VERB:
        return "does not begin with a verb"
    if len(subject) > SUBJECT_MAX:
        return "has %d characters (at most %d)" % (len(subject), SUBJECT_MAX)
    return None


def check_subjects():
    """The last commits' subjects; nothing where git or the history is not there."""
    try:
        log = subprocess.run(
            ["git", "-C", ROOT, "log", "--no-merges", "-n", "400", "--format=%aI %h %s"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout
    except OSError:
        return
    for line in log.splitlines():
        written, commit, subject = line.split(" ", 2)
        why = check_subject(subject)
        if why and utc(written) >= utc(SUBJECTS_SINCE):
            yield "commit %s: its subject %s: %s" % (commit, why, subject)


def utc(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def check_file(path, safe_names, notes, guards):
    with open(os.path.join(ROOT, path), errors="replace") as source:
        text = source.read()
    found = list(check_form(path, text))
    if path.endswith((".c", ".h")):
        code = blanked(text)
        found += list(check_opening(text)) + list(check_comments(text))
        found += list(check_banned(path, code)) + list(check_sizeof(code))
        found += list(check_guard(path, text, guards)) if path.endswith(".h") else \
            list(check_own_header(path, text))
        if path.startswith(SIGNAL_IN):
            found += list(check_signal(code, safe_names))
        if notes:
            found += list(check_long(code))
    if re.match(r"tests/.*/test_\w+\.py$", path):
        found += list(check_test(text))
    return ["%s:%d: %s" % (path, line, what) for line, what in sorted(found)]


def sources():
    for top in TOP:
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            if "__pycache__" in folder:
                continue
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), ROOT)
                if name.endswith((".c", ".h", ".py", ".lua", ".sh")):
                    yield path


def signal_names():
    """Every function of core and of sdk/lib whose comment carries the tag."""
    names = set()
    for path in sources():
        if path.startswith(SIGNAL_IN) and path.endswith((".c", ".h")):
            with open(os.path.join(ROOT, path), errors="replace") as source:
                names |= tagged(source.read())
    return names


def header_guards():
    """{macro: header}; of two headers that share one, the first by name."""
    found = {}
    for path in sorted(sources()):
        if path.endswith(".h"):
            with open(os.path.join(ROOT, path), errors="replace") as source:
                found.setdefault(guard_of(source.read()), path)
    return found


def main(arguments):
    listed = [what for what in COUNTED if "--" + what.rsplit(" ", 1)[0] in arguments]
    if listed or arguments == ["--write"]:
        found = counted(sorted(sources()))
        print("".join(line + "\n" for what in listed for line in found[what]), end="")
        if not listed:
            write_counts(found)
        return 0
    notes = "--notes" in arguments
    named = [os.path.relpath(os.path.abspath(a), ROOT) for a in arguments if a != "--notes"]
    safe_names, guards = signal_names(), header_guards()
    found = [line for path in named or sorted(sources())
             for line in check_file(path, safe_names, notes, guards)]
    if not named:
        found += list(check_counts(counted(sources()), allowed_counts()))
        found += list(check_subjects())
    print("\n".join(found), end="\n" if found else "")
    return 1 if any(": note: " not in line for line in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
