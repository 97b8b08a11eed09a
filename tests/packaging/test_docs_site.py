# SPDX-License-Identifier: Apache-2.0
"""The web site that `scons docs` makes of the pages: all are there, and no link leads nowhere."""
import re
import subprocess

import pytest

from world import ROOT

MAKER = ROOT / "scripts/tools/docs_site.py"


@pytest.fixture
def site(tmp_path):
    done = subprocess.run(["/usr/bin/python3", str(MAKER), str(tmp_path)], capture_output=True,
                          text=True)
    if done.returncode == 3:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    return tmp_path / "site"


def test_every_page_is_in_it(site):
    listed = re.findall(r"^\| \[(\w+)\.md\]\(\w+\.md\)", (ROOT / "docs/README.md").read_text(),
                        flags=re.M)
    assert sorted(listed) == sorted(p.stem for p in (ROOT / "docs").glob("*.md")
                                    if p.name != "README.md")
    first = (site / "index.html").read_text()
    at = [first.index('href="docs/%s.html"' % name) for name in listed]
    assert at == sorted(at)  # the order of the list is the order of the menu


def test_tables_and_code_are_what_the_pages_say(site):
    """A pipe within code in a table has a backslash for other readers of Markdown only."""
    page = (site / "docs" / "many_ranks.html").read_text()
    assert "<table>" in page
    for page in (site / "docs").glob("*.html"):
        assert not re.search(r"<td>[^<]*<code>[^<]*\\\|", page.read_text()), page
