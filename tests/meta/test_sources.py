# SPDX-License-Identifier: Apache-2.0
"""The sources keep the house rules, and the programs that judge them can tell bad from good."""
import os
import re
import shutil
import subprocess
import sys

import pytest
from product import ROOT, TOOLS, tool

sys.path.insert(0, TOOLS)
import check_includes  # noqa: E402
import check_rooms  # noqa: E402
import check_style  # noqa: E402


def test_includes_go_one_way():
    rc, text = tool("/usr/bin/python3", os.path.join(TOOLS, "check_includes.py"))
    assert rc == 0, text


def test_docs_name_files_that_are_there():
    named = re.compile(r"`((?:core|cli|plugins|sdk|tests|scripts|include)/[\w./-]+\.\w+)`")
    for folder, names in (("", ["README.md", "CONTRIBUTING.md"]),
                          ("docs", os.listdir(os.path.join(ROOT, "docs")))):
        for name in (n for n in names if not os.path.isdir(os.path.join(ROOT, folder, n))):
            with open(os.path.join(ROOT, folder, name)) as page:
                found = named.findall(page.read())
            for path in found:
                assert os.path.exists(os.path.join(ROOT, path)), (name, path)


def heading_links(text):
    """The anchors that a hosted page makes of its headings."""
    heads = re.findall(r"^#+ (.*)$", text, flags=re.M)
    return [re.sub(r"[^\w\- ]", "", head.strip().lower()).replace(" ", "-") for head in heads]


def test_the_architecture_has_every_folder():
    """Seven folders of sources were in no page, and two were called by names of long ago."""
    with open(os.path.join(ROOT, "docs", "architecture.md")) as page:
        named = set(re.findall(r"`((?:core|cli|plugins|sdk|include)(?:/[\w/]+)?)`", page.read()))
    there = set()
    for top in ("core", "cli", "plugins", "sdk", "include"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            if any(name.endswith((".c", ".h")) for name in names):
                there.add(os.path.relpath(folder, ROOT))
    # a plugin's own folder is named by its rooms
    missing = {f for f in there if not any(n == f or n.startswith(f + "/") for n in named)}
    assert not missing, missing
    assert all(os.path.isdir(os.path.join(ROOT, n)) for n in named), named


def test_links_between_pages_lead_somewhere():
    """docs/benchmarks.md linked to docs/docs/store.md."""
    for folder in ("", "docs", "examples"):
        for name in sorted(os.listdir(os.path.join(ROOT, folder))):
            if not name.endswith(".md"):
                continue
            with open(os.path.join(ROOT, folder, name)) as page:
                text = page.read()
            for link in re.findall(r"\]\(([^)\s]+)\)", text):
                path, _, anchor = link.partition("#")
                there = os.path.join(ROOT, folder, path or name)
                assert "://" in link or os.path.exists(there), (name, link)
                if anchor and "://" not in link:
                    with open(there) as other:
                        assert anchor in heading_links(other.read()), (name, link)


def test_rooms_are_small_and_in_order():
    rc, text = tool("/usr/bin/python3", os.path.join(TOOLS, "check_rooms.py"))
    assert rc == 0, text


@pytest.mark.parametrize("target,path,bad", [
    ("core/store/store.h", "core/sql/exec/scan.c", False),
    ("core/store/internal.h", "core/sql/exec/scan.c", True),
    ("core/sql/plan/plan.h", "core/sql/engine.c", False),
    ("core/ring/ring.h", "core/sql/engine.c", True),
])
def test_a_room_has_one_door(target, path, bad):
    assert bool(check_includes.check_one(target, True, path)) == bad


@pytest.mark.parametrize("number,known,bad", [
    (None, None, False), (700, 700, False), (700, None, True), (701, 700, True), (699, 700, True),
    (None, 700, True),
])
def test_exceptions_only_shrink(number, known, bad):
    found = [("same x.c", number, "x.c stands in two rooms")] if number else []
    allowed = {"same x.c": known} if known else {}
    assert bool(list(check_rooms.complaints(found, allowed))) == bad


def test_sizes_are_noted_and_do_not_fail(monkeypatch):
    monkeypatch.setattr(check_rooms, "read", lambda path: "text\n" * 601)
    paths = ["core/x/%d.c" % n for n in range(26)]
    notes = list(check_rooms.note_sizes(paths))
    assert len(notes) == 27 and all(n.startswith("note: core/x") for n in notes), notes
    assert not list(check_rooms.check_folders(paths))


@pytest.mark.parametrize("paths,bad", [
    (["tests/e2e/test_x.py", "tests/meta/test_x.py"], True),
    (["core/base/x_test.c", "tests/store/x_test.c"], True),
    (["tests/e2e/test_x.py", "core/base/x_test.c", "tests/e2e/conftest.py",
      "tests/torch/conftest.py"], False),
])
def test_no_two_tests_have_one_name(monkeypatch, paths, bad):
    monkeypatch.setattr(check_rooms, "read", lambda path: "text\n")
    assert bool(list(check_rooms.check_folders(paths))) == bad


@pytest.mark.parametrize("path,number", [
    ("core/sql/value/query.c", 0), ("core/sql/bind/bind.c", 4), ("core/sql/engine.c", 5),
])
def test_strata_have_an_order(path, number):
    assert check_rooms.stratum(path, "core/sql") == number


def test_symbols_are_found_where_they_are_used():
    symbols = check_rooms.Symbols(["core/base/err.c", "core/base/file.c", "core/sql/engine.c"])
    assert ("core/base/err.c", "err_set") in symbols.uses["core/base/file.c"]
    assert not symbols.uses["core/base/err.c"]


def test_style():
    rc, text = tool("/usr/bin/python3", os.path.join(TOOLS, "check_style.py"))
    assert rc == 0, text


def clang_format():
    """Other versions lay out otherwise: only the one that .clang-format is for.  None: not here."""
    for name in "clang-format-14", "clang-format", os.path.expanduser("~/.local/bin/clang-format"):
        rc, text = tool(name, "--version") if shutil.which(name) else (1, "")
        if rc == 0 and "version 14." in text:
            return name
    return None


@pytest.mark.parametrize("part", range(4))  # several at a time
def test_layout(part):
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "*.c", "*.h"], stdout=subprocess.PIPE)
    program = clang_format()
    if not program:
        pytest.skip("no clang-format 14 (Debian's clang-format-14, or pip's clang-format==14.0.6)")
    if listed.returncode != 0:
        pytest.skip("no git checkout")
    with open(os.path.join(ROOT, ".clang-format-ignore")) as ignored:
        by_hand = set(ignored.read().split("\n"))
    files = [f for f in listed.stdout.decode().split() if f not in by_hand]
    rc, text = tool(program, "--dry-run", "-Werror", *files[part::4])
    assert rc == 0, text


def test_nothing_of_others_is_committed():
    """A wheel that pip had left in the checkout was, once, and what a test had shipped into its
    folder: all files are text, and short, and lie in a room."""
    rooms = {"cli", "core", "docs", "examples", "include", "plugins", "scripts", "sdk", "tests"}
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], stdout=subprocess.PIPE)
    if listed.returncode != 0:
        pytest.skip("no git checkout")
    for path in filter(None, listed.stdout.decode().split("\0")):
        full = os.path.join(ROOT, path)
        assert not os.path.exists(full) or os.path.getsize(full) < 300 * 1024, path
        room = path.partition("/")[0]
        assert "/" not in path or room in rooms or room.startswith("."), path
        assert not path.endswith((".whl", ".gz", ".xz", ".zip", ".deb", ".so", ".a", ".o")), path


def test_sconstruct_fits_a_page():
    with open(os.path.join(ROOT, "SConstruct")) as source:
        assert len(source.readlines()) <= 100


def test_unknown_option_is_an_error():
    rc, text = tool("/usr/bin/scons", "-Q", "-n", "colour=blue")
    assert rc != 0 and "unknown option: colour" in text


@pytest.mark.parametrize("name,path,bad", [
    ("lmdb.h", "core/sql/plan/plan.c", True),
    ("lmdb.h", "core/store/segment.c", False),
    ("libunwind-ptrace.h", "cli/inject/safe_point.c", False),
    ("lua.h", "plugins/torch/torch.c", True),
    ("stdio.h", "core/base/err.c", False),
])
def test_linked_libraries_stay_at_home(name, path, bad):
    assert bool(check_includes.check_one(name, False, path)) == bad


@pytest.mark.parametrize("path,bad", [
    ("core/base/text.c", False), ("core/stack/stack.c", False), ("cli/main.c", False),
    ("plugins/torch/torch.c", True), ("include/probing/plugin.h", True),
])
def test_core_base_is_seen_by_some(path, bad):
    found = check_includes.check_one("core/base/err.h", True, path)
    assert bool(found) == bad, found


@pytest.mark.parametrize("name,bad", [
    ("probing/report.h", False), ("report.h", False), ("plugins/torch/internal.h", True),
    ("cli/target/target.h", True), ("core/base/err.h", True),
])
def test_a_report_sees_neither_the_command_nor_the_plugin(name, bad):
    found = check_includes.check_one(name, True, "plugins/torch/report/torch_report.c")
    assert bool(found) == bad, found


def banned(code):
    return [what for _, what in check_style.check_banned("core/x.c", check_style.blanked(code))]


def test_banned_functions_are_found():
    assert banned("strcpy(a, b);") and banned("x = fork();") and banned("  exit (1);")


def test_what_only_looks_banned_is_not():
    for code in ("_exit(1);", 'log("exit(1)");', "/* fork() */", "h->signal(3);", "my_dup(1);",
                 "s.system(2);"):
        assert not banned(code), code


def test_line_comments_are_found():
    assert list(check_style.check_comments("int a; // no\n"))
    assert not list(check_style.check_comments('/* http://x */ char *u = "http://y";\n'))


@pytest.mark.parametrize("code,bad", [
    ("n = sizeof x;", True), ("n = sizeof *p * 2;", True), ("n = sizeof (int);", True),
    ("n = sizeof(x);", False), ("my_sizeof x;", False), ('"sizeof x"', False),
])
def test_sizeof_has_parentheses(code, bad):
    assert bool(list(check_style.check_sizeof(check_style.blanked(code)))) == bad


@pytest.mark.parametrize("text,guards,bad", [
    ("#ifndef A_H\n#define A_H\n#endif\n", {"A_H": "a.h"}, False),
    ("#ifndef A_H\n#define B_H\n#endif\n", {}, True),
    ("int x;\n", {}, True),
    ("#ifndef A_H\n#define A_H\n#endif\n", {"A_H": "0.h"}, True),
])
def test_headers_have_guards_of_their_own(text, guards, bad):
    assert bool(list(check_style.check_guard("a.h", text, guards))) == bad


@pytest.mark.parametrize("text,bad", [
    ('#include "core/x.h"\n#include <errno.h>\n', False), ('#include "x.h"\n', False),
    ('#include <errno.h>\n\n#include "core/x.h"\n', True),
    ('#include <errno.h>\n#include "core/ax.h"\n', False), ("int x;\n", False),
])
def test_the_own_header_is_first(text, bad):
    assert bool(list(check_style.check_own_header("core/x.c", text))) == bad


@pytest.mark.parametrize("text,bad", [
    ("def test_a():\n    pass\n\ndef test_a():\n    pass\n", True),
    ("class TestA:\n    def test_a(self): 1\nclass TestB:\n    def test_a(self): 1\n", False),
    ("def test_a():\n    time.sleep(1)\n", True),
    ("def test_a():\n    time.sleep(1)  # Ctrl-C must work late, too\n", False),
    ("def test_a():\n    while not there():\n        time.sleep(0.01)\n", False),
    ("CODE = 'time.sleep(600)'\n", False),
])
def test_python_tests_neither_hide_nor_sleep(text, bad):
    assert bool(list(check_style.check_test(text))) == bad


@pytest.mark.parametrize("path,text,bad", [
    ("core/x.c", "/* What the ring holds of it. */\n", True),
    ("core/x.h", "int n; /* Those of the\n * other side. */\n", True),
    ("core/x.c", "/* Rows that the ring holds. */\n", False),
    ("core/x.c", "/* What it holds */\n", False),
    ("core/x.c", 'say("/" "* Of those that are here */");\n', False),
    ("tests/test_x.py", '"""Whose turn it is to speak."""\n', True),
    ("tests/test_x.py", "#!/usr/bin/python3\n# The first line.\n# What follows is more.\n", False),
    ("tests/x.lua", "-- Where one is looked for.\n", True),
])
def test_headless_comments_are_found(path, text, bad):
    assert bool(list(check_style.headless(path, text))) == bad


def test_one_word_functions_are_found():
    code = ("static int take(int a)\n{\n}\n\nint ring_add(void)\n{\n    look(a);\n}\n\n"
            "static struct row *find(\n    int a)\n{\n}\n\nstruct rows {\n    int a;\n};\n")
    assert [n for _, n in check_style.one_word("core/x.c", code)] == ["take", "find"]
    assert not list(check_style.one_word("core/x_test.c", code))


def test_counts_may_only_fall(tmp_path, monkeypatch):
    path = tmp_path / "counts"
    path.write_text("# a head\nheadless comments 2\none-word functions 3\n")
    monkeypatch.setattr(check_style, "WORD_COUNTS", str(path))
    found = {"headless comments": ["a:1: x"] * 3, "one-word functions": ["a:1: y"]}
    assert [c.split(",")[0] for c in check_style.check_counts(
        found, check_style.allowed_counts())] == ["3 headless comments"]
    check_style.write_counts(found)
    assert check_style.allowed_counts() == {"headless comments": 2, "one-word functions": 1}


@pytest.mark.parametrize("subject,bad", [
    ("ring: count rows that were lost", False), ("core/sql, docs: drop md5()", False),
    ("ring: " + "x" * 67, True), ("count rows", True), ("ring:", True),
    ("ring: what is lost is counted", True), ("ring: the lost rows are counted", True),
    ("rows of the ring: count them", True),
])
def test_commit_subjects_are_judged(subject, bad):
    assert bool(check_style.check_subject(subject)) == bad


def test_signal_functions_are_followed():
    code = ("static void helper(void)\n{\n    free(x);\n}\n\n"
            "int ring_append(int a)\n{\n    memcpy(a);\n    helper();\n}\n")
    found = [what for _, what in check_style.check_signal(code, {"ring_append"})]
    assert found == ["helper() is [signal] and calls free()"]
    header = "/* Add a row.\n * 0 or less.  [signal] */\nint ring_append(struct table *t);\n"
    assert check_style.tagged(header) == {"ring_append"}


@pytest.mark.parametrize("text,names", [
    ("uint64_t now(void); /* ns   [signal] */\nint x(int); /* [any] */\n", {"now"}),
    ("#define A UINT64_C(1)\n\n/* Off.   [child] */\nvoid ring_off(void);\n", {"ring_off"}),
    ("#define A UINT64_C(1)\nint now(void); /* [signal] */\n", {"now"}),
    ("/* A file; never [signal]. */\nint file_read(int fd);\n", set()),
])
def test_tags_are_read(text, names):
    assert check_style.tagged(text) == names


def test_hashes_stand_once():
    """FNV's numbers and the golden ratio are in sdk/lib/hash.h; tests may make numbers of them."""
    numbers = "100000001b3|16777619|9e3779b97f4a7c15|2166136261|cbf29ce484222325"
    found = subprocess.run(["grep", "-rliE", numbers, "--include=*.[ch]", "core", "cli", "plugins",
                            "sdk"], cwd=ROOT, stdout=subprocess.PIPE, text=True).stdout.split()
    assert [f for f in found if not f.endswith("_test.c")] == ["sdk/lib/hash.h"]
