#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make a web site of the pages of this tree, the same files: build/docs/site/index.html.

usage: scripts/tools/docs_site.py [FOLDER]    build/docs by default; `scons docs`

Needs mkdocs (apt install mkdocs, pip install mkdocs).  docs/README.md gives the pages' order.
Exit code 1 if a link or an anchor of a page leads nowhere, 3 if mkdocs is not installed.
"""
import html.parser
import json
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"!?\[[^]]*\]\(([^)#\s]+)(#[^)\s]*)?\)")


def pages():
    """README.md and all that it leads to, by links between files of this tree."""
    found, open_ = [], ["README.md", "docs/README.md"]
    while open_:
        page = open_.pop(0)
        if page in found:
            continue
        found.append(page)
        if not page.endswith(".md"):
            continue
        for target, _ in LINK.findall((ROOT / page).read_text()):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
            if "://" not in target and (ROOT / path).is_file():
                open_.append(path)
    return found


def title(page):
    return re.search(r"^# (.*)", (ROOT / page).read_text(), flags=re.M)[1].replace("`", "")


def navigation():
    """docs/README.md: its bold lines are sections, the first cell of a row is a page."""
    nav = [{"probing": "README.md"}]
    for line in (ROOT / "docs/README.md").read_text().split("\n"):
        section, row = re.match(r"\*\*(.*)\*\*$", line), re.match(r"\| \[[^]]*\]\(([^)]*)\)", line)
        if section:
            nav.append({section[1]: []})
        elif row:
            page = posixpath.normpath("docs/" + row[1])
            list(nav[-1].values())[0].append({title(page): page})
    return nav


def stage(folder):
    """The pages as Python-Markdown reads them: there a pipe in code needs no backslash."""
    for page in pages():
        copy = folder / page
        copy.parent.mkdir(parents=True, exist_ok=True)
        if page.endswith(".md"):
            lines = (ROOT / page).read_text().split("\n")
            copy.write_text("\n".join(
                re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), line)
                if line.startswith("|") else line for line in lines))
        else:
            shutil.copyfile(ROOT / page, copy)


class Links(html.parser.HTMLParser):
    """Links of a made page, and the places in it that others may link to."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links = set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        for name, value in attrs:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value)
            elif (tag, name) in (("a", "href"), ("img", "src")) and value:
                self.links.append(value)


def dead_links(site):
    made = {page: Links(page.read_text()) for page in site.rglob("*.html")}
    for page, found in sorted(made.items()):
        for link in found.links:
            url = urlsplit(link)
            if url.scheme or url.netloc or page.name == "404.html":
                continue
            path = (page.parent / unquote(url.path)).resolve() if url.path else page
            path = path / "index.html" if path.is_dir() else path
            lost = not path.exists() or (url.fragment and path in made and
                                         unquote(url.fragment) not in made[path].anchors)
            if lost:
                yield "%s: %s leads nowhere" % (page.relative_to(site), link)


def main(folder="build/docs"):
    if shutil.which("mkdocs") is None:
        print("docs: mkdocs is not installed (apt install mkdocs)")
        return 3
    folder = (ROOT / folder).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    stage(folder / "source")
    config = {"site_name": "probing", "docs_dir": "source", "site_dir": "site",
              "theme": "readthedocs", "use_directory_urls": False,
              "nav": navigation(),
              "markdown_extensions": ["tables", "sane_lists", "fenced_code",
                                      {"toc": {"permalink": True}}]}
    (folder / "mkdocs.yml").write_text(json.dumps(config, indent=1))  # JSON is YAML
    done = subprocess.run(["mkdocs", "build", "-q", "--strict", "-f", str(folder / "mkdocs.yml")])
    if done.returncode:
        return 1
    dead = list(dead_links(folder / "site"))
    print("\n".join(dead + ["docs: %s" % (folder / "site/index.html")]))
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
