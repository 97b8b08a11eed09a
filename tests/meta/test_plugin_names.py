# SPDX-License-Identifier: Apache-2.0
"""Core and command know no plugin's tables and views: these come from what the plugin declares."""
import os
import re

import pytest
from product import ROOT

ALLOWED = os.path.join(ROOT, "tests", "meta", "plugin_names.txt")


def sources(root, *tops):
    for top in tops:
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h")) and not name.endswith(("_test.c", "_test.h")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def code(root, path):
    """Without comments; a text in pieces is one text."""
    with open(os.path.join(root, path), errors="replace") as source:
        text = re.sub(r"/\*.*?\*/", " ", source.read(), flags=re.S)
    return re.sub(r'"\s*\n\s*"', "", text)


def arrays(text, kind):
    return re.findall(r"struct %s \w+(?:\[\])? = \{(.*?)\};" % kind, text, flags=re.S)


def declared(root):
    """The names that plugins give their tables ("torch.ops"), views and older settings."""
    found = set()
    for path in sources(root, "plugins"):
        text, plugin = code(root, path), path.split("/")[1]
        names = re.findall(r'PROBING_(?:TEXT_|COMPUTED_)?TABLE(?:_OF)?\(\s*"([a-z_0-9.]+)"', text)
        for body in arrays(text, "probing_table_desc"):
            names += re.findall(r'\.name = "([a-z_0-9.]+)"', body)
        found |= {n if "." in n else "%s.%s" % (plugin, n) for n in names}
        for kind in "probing_view", "probing_alias":
            for body in arrays(text, kind):
                found |= set(re.findall(r'\{\s*"([a-z_0-9.]+)",', body))
    return found


def named(root):
    """{(file, name)}: where core and command say one of these."""
    names = declared(root)
    words = re.compile(r"(?<![\w.])(%s)(?![\w])" % "|".join(
        re.escape(n) for n in sorted(names, key=len, reverse=True)))
    return {(path, n) for path in sources(root, "core", "cli")
            for n in words.findall(code(root, path))}


def covers(line, what):
    place, name = line
    return (what[0].startswith(place) if place.endswith("/") else what[0] == place) \
        and name in ("*", what[1])


def complaints(found, allowed):
    for path, name in sorted(found):
        if not any(covers(line, (path, name)) for line in allowed):
            yield "%s names %s: a plugin declares what is to be known of it" % (path, name)
    for line in allowed:
        if not any(covers(line, what) for what in found):
            yield "%s %s is not needed any more: out of plugin_names.txt with it" % line


def allowed_lines():
    with open(ALLOWED) as lines:
        return [tuple(line.split()) for line in lines if not line.startswith("#")]


def test_core_and_command_name_no_plugins_tables():
    assert {"torch.ops", "python.torch_trace", "training_logs", "probing.sample_rate",
            "python.samples"} <= declared(ROOT)
    assert list(complaints(named(ROOT), allowed_lines())) == []


@pytest.mark.parametrize("found,allowed,bad", [
    ({("core/a.c", "t.x")}, [], True), ({("core/a.c", "t.x")}, [("core/a.c", "t.x")], False),
    ({("core/a.c", "t.x")}, [("core/", "*")], False), (set(), [("core/a.c", "t.x")], True),
    ({("core/a.c", "t.y")}, [("core/a.c", "t.x")], True)])
def test_it_can_tell(found, allowed, bad):
    assert bool(list(complaints(found, allowed))) == bad
