# SPDX-License-Identifier: Apache-2.0
"""The files that `flamegraph` writes, read back by other means than its own."""
import gzip
import json
import re
import shutil
import subprocess
import urllib.request
import xml.dom.minidom

import pytest
from samples import folded, helper, name, share
from world import DEBIAN_PYTHON, LIMIT, wait_for


@pytest.fixture
def sampled(world):
    """A process with samples whose profiler runs."""
    target = world.start(helper("natives"), "2")
    target.wait_line("ready")
    target.inject("--plugin", "profile")
    fewest = ("select count(*), min(n) from (select count(*) as n from python.samples group by "
              "thread_id) t")
    wait_for(lambda: [row for row in target.rows(fewest) if row[0] == 2 and row[1] > 100],
             "samples of both threads")
    return target


def write(target, file, *arguments):
    path = target.world.tmp / file
    done = target.probing("flamegraph", "-o", str(path), *arguments)
    assert done.returncode == 0, done.stderr
    return path.read_bytes()


# Run the page's script without a browser: boxes of a row, and the tip over each.
BROWSER = r"""
const boxes = [], handlers = {}, elements = {};
const context = new Proxy({measureText: () => ({width: 7}), fillRect: (...box) => boxes.push(box)},
                          {get: (o, k) => k in o ? o[k] : () => {}, set: () => true});
const element = id => elements[id] = elements[id] || {id, style: {}, clientWidth: 1000,
  offsetWidth: 10, offsetHeight: 10, textContent: "", getContext: () => context,
  getBoundingClientRect: () => ({left: 0, top: 0}),
  addEventListener: (name, f) => { handlers[id + " " + name] = f; }};
const document = {getElementById: element}, window = {devicePixelRatio: 1};
const innerWidth = 1000, innerHeight = 900, addEventListener = () => {};
const matchMedia = () => ({addEventListener: () => {}});
@PAGE@
console.log(JSON.stringify(boxes.map(([x, y, w]) => {
  handlers["graph mousemove"]({clientX: x + w / 2, clientY: y + 1});
  return [x, y, w, elements.tip.textContent];
})));
"""


def drawn(world, page):
    """[x, y, width, tip] of each box."""
    node = shutil.which("node")
    if not node:
        pytest.skip("no node to run the page's script (Debian: nodejs)")
    script = page[page.index("<script>") + 8:page.index("</script>")]
    file = world.tmp / "browser.js"
    file.write_text(BROWSER.replace("@PAGE@", script))
    done = subprocess.run([node, str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_page_says_how_many_samples(sampled):
    tips = [box[3] for box in drawn(sampled.world,
                                    write(sampled, "out.html", "--last", "1m").decode())]
    assert re.match(r"all\n[\d.]+ (s|ms), 100.00 %, \d+ samples", tips[0]), tips[0]
    count = {tip.split(" ")[0]: int(re.search(r"(\d+) samples?", tip).group(1)) for tip in tips}
    assert count["work"] <= count["all\n%s" % tips[0].split("\n")[1].split(" ")[0]]
    assert count["work"] >= count["seventy"] > 10


def test_difference_keeps_its_boxes_apart(world):
    """Growth and shrinkage in one function: both are there, inside of it."""
    (world.tmp / "b.folded").write_text("main;a;old 300\nmain;a;both 100\nmain;b 50\n")
    (world.tmp / "c.folded").write_text("main;a;new 300\nmain;a;both 120\nmain;b 50\nmain;c 9\n")
    page = world.tmp / "d.html"
    done = world.probing("flamegraph", "diff", str(world.tmp / "b.folded"),
                         str(world.tmp / "c.folded"), "-o", str(page))
    assert done.returncode == 0, done.stderr
    boxes = drawn(world, page.read_text())
    place = {tip.split("\n")[0]: (x, x + w, y) for x, y, w, tip in boxes}
    assert sorted(place) == ["a", "all", "b", "both", "c", "main", "new", "old"]
    for row in {y for _, y, _, _ in boxes}:
        ends = sorted(p[:2] for p in place.values() if p[2] == row)
        assert all(a[1] <= b[0] + 1 for a, b in zip(ends, ends[1:])), ends
    for inner, outer in (("old", "a"), ("new", "a"), ("both", "a"), ("a", "main"), ("c", "main")):
        assert place[outer][0] <= place[inner][0] + 1 and place[inner][1] <= place[outer][1] + 1


def test_page(sampled):
    page = write(sampled, "out.html", "--last", "1m").decode()
    assert page.startswith("<!DOCTYPE html>") and "seventy" in page and "@DATA@" not in page
    for outside in ("http://", "https://", "src=", "import "):
        assert outside not in page
    node = shutil.which("node")
    if node:
        script = page[page.index("<script>") + 8:page.index("</script>")]
        file = sampled.world.tmp / "page.js"
        file.write_text(script)
        assert subprocess.run([node, "--check", str(file)]).returncode == 0


def test_picture(sampled):
    picture = xml.dom.minidom.parseString(write(sampled, "out.svg", "--last", "1m"))
    titles = [t.firstChild.data for t in picture.getElementsByTagName("title")]
    assert any(t.startswith("seventy (natives)") for t in titles)
    assert re.match(r"all - [\d.]+ ms, 100.00 %, \d+ samples$", titles[0])


def test_a_picture_is_as_wide_as_asked_and_says_of_what(sampled):
    svg = write(sampled, "out.svg", "--last", "1m", "--width", "700")
    picture = xml.dom.minidom.parseString(svg)
    assert picture.documentElement.getAttribute("width") == "700"
    widths = [float(r.getAttribute("width")) for r in picture.getElementsByTagName("rect")[1:]]
    assert max(widths) == 700
    title = picture.getElementsByTagName("text")[0].firstChild.data
    assert title == "natives (%d): cpu time" % sampled.pid
    for words, said in ((("--width", "10"), "200"), (("--width", "wide"), "pixels"),
                        (("--width", "700", "--format", "html"), "svg")):
        done = sampled.probing("flamegraph", "-o", str(sampled.world.tmp / "x"), *words)
        assert done.returncode != 0 and said in done.stderr, done.stderr
    shown = sampled.probing("flamegraph", "--last", "1m", "--format", "folded").stdout
    assert "oven::burn() (natives)" in shown and "_ZN4oven" not in shown


def test_speedscope(sampled):
    data = json.loads(write(sampled, "out.json", "--last", "1m"))
    frames = [f["name"] for f in data["shared"]["frames"]]
    assert len(data["profiles"]) == 2
    for profile in data["profiles"]:
        assert profile["type"] == "sampled" and profile["unit"] == "nanoseconds"
        assert len(profile["samples"]) == len(profile["weights"]) > 10
        assert sum(profile["weights"]) == profile["endValue"]
        for sample in profile["samples"]:
            assert all(0 <= i < len(frames) for i in sample)
    names = [[name(frames[i]) for i in s] for p in data["profiles"] for s in p["samples"]]
    assert sum("work" in s and s.index("work") < len(s) - 1 for s in names) > len(names) / 2


def test_perfetto_is_the_format_of_that_name(sampled, tmp_path):
    """As `export` writes it; and a name that ends in .gz is written so."""
    data = write(sampled, "out.pftrace", "--last", "1m")
    assert data[:1] == b"\n" and b"traceEvents" not in data and b"seventy" in data
    path = tmp_path / "out.folded.gz"
    assert sampled.probing("flamegraph", "--last", "1m", "-o", str(path)).returncode == 0
    folded = gzip.decompress(path.read_bytes()).decode()
    assert re.search(r"seventy .* \d+$", folded, re.M), folded[:300]


def test_chrome(sampled):
    events = json.loads(write(sampled, "out.trace", "--last", "1m"))["traceEvents"]
    slices = [e for e in events if e["ph"] == "X"]
    assert {e["args"]["name"] for e in events if e["ph"] == "M"} == {"natives"}
    assert {"main", "seventy"} <= {name(e["name"]) for e in slices}
    for tid in {e["tid"] for e in slices}:  # slices of a thread lie inside each other or apart
        open_until = []
        for e in sorted((e for e in slices if e["tid"] == tid),
                        key=lambda e: (e["ts"], -e["dur"])):
            while open_until and open_until[-1] <= e["ts"] + 1:
                open_until.pop()
            assert not open_until or e["ts"] + e["dur"] <= open_until[-1] + 1
            open_until.append(e["ts"] + e["dur"])


def varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def fields(data):
    """[(field, value)] of a protocol buffer message; values are numbers or bytes."""
    at, found = 0, []
    while at < len(data):
        key, at = varint(data, at)
        assert key & 7 in (0, 2)
        value, at = varint(data, at)
        if key & 7 == 2:
            value, at = data[at:at + value], at + value
        found.append((key >> 3, value))
    return found


def every(message, number):
    return [value for field, value in message if field == number]


def test_pprof(sampled):
    top = fields(write(sampled, "out.pb", "--last", "1m"))
    strings = [s.decode() for s in every(top, 6)]
    assert strings[0] == ""
    types = [[strings[v] for _, v in fields(t)] for t in every(top, 1)]
    assert types == [["samples", "count"], ["cpu", "nanoseconds"]]
    functions = {dict(fields(f))[1]: strings[dict(fields(f))[2]] for f in every(top, 5)}
    lines = {}
    for location in map(fields, every(top, 4)):
        place = dict(location)
        lines[place[1]] = functions[dict(fields(place[4]))[1]]
    total = seventy = 0
    for sample in map(fields, every(top, 2)):
        stack, values = [lines[i] for i in every(sample, 1)], every(sample, 2)
        assert len(values) == 2 and values[0] >= 1
        total += values[1]
        seventy += values[1] if "seventy" in stack else 0
        if "work" in stack and "seventy" in stack:
            assert stack.index("seventy") < stack.index("work")  # the leaf comes first
    assert 0.5 < seventy / total < 0.9
    assert every(top, 10) == [total]


def test_difference(sampled):
    world = sampled.world
    write(sampled, "a.folded", "--last", "1m")
    (world.tmp / "b.folded").write_text("main;old 100\nmain;new 300\n")
    (world.tmp / "c.folded").write_text("main;old 300\nmain;new 100\n")
    b, c = str(world.tmp / "b.folded"), str(world.tmp / "c.folded")
    done = world.probing("flamegraph", "diff", b, c, "--format", "folded")
    assert sorted(done.stdout.splitlines()) == ["main;new 300 100", "main;old 100 300"]
    for arguments in ((b, c), (str(world.tmp / "a.folded"), str(sampled.pid))):
        path = world.tmp / "diff.svg"
        done = world.probing("flamegraph", "diff", *arguments, "-o", str(path))
        assert done.returncode == 0, done.stderr
        xml.dom.minidom.parse(str(path))
        done = world.probing("flamegraph", "diff", *arguments, "-o", str(world.tmp / "d.html"))
        assert done.returncode == 0, done.stderr
    done = world.probing("flamegraph", "diff", b, c, "-o", str(world.tmp / "d.svg"))
    assert done.stderr.endswith("d.svg: 400 in 2 stacks\n"), done.stderr  # of what, no file says
    assert "<title>main - 400, 100.00 %" in (world.tmp / "d.svg").read_text()
    (world.tmp / "bad.folded").write_text("no number\n")
    done = world.probing("flamegraph", "diff", b, str(world.tmp / "bad.folded"), "-o", "x.html")
    assert done.returncode == 1 and "not a folded stack" in done.stderr
    assert not (world.tmp / "x.html").exists()


DEEP = """
import sys, threading, time
sys.setrecursionlimit(10000)
threading.stack_size(128 << 20)
def deepest():
    end = time.thread_time() + 0.05
    while time.thread_time() < end:
        pass
    time.sleep(0.05)
def down(n):
    if n:
        down(n - 1)
    while not n:
        deepest()
def work():
    print("ready", flush=True)
    down(%d)
threading.Thread(target=work).start()
"""


@pytest.mark.some_pythons
@pytest.mark.parametrize("depth", [950, 3000, 6000])
@pytest.mark.parametrize("mode", ["cpu", "wall"])
def test_deep_stacks_are_whole(world, python, depth, mode):
    """Or, where there are more frames than are kept, one says how many are not there."""
    target = world.python(DEEP % depth, python)
    target.wait_line("ready")
    target.inject("--plugin", "profile")
    assert target.probing("config", "profile.mode=" + mode).returncode == 0
    enough = "select count(*) > 9 from python.samples where cpu_ns %s 0" % (">" if mode == "cpu"
                                                                            else "=")
    wait_for(lambda: target.rows(enough) == [[1]], "samples", 120)
    done = target.probing("flamegraph", "--last", "1m", "--mode", mode, "-f", "folded")
    assert done.returncode == 0, done.stderr
    seen = 0
    for stack, _ in folded(done.stdout):
        words = [name(frame) for frame in stack if ".py)" in frame or frame.startswith("[")]
        if "deepest" not in words:
            continue
        seen += 1
        gaps = [re.fullmatch(r"\[(\d+) frames left out\]", word) for word in words]
        missing = [int(gap[1]) for gap in gaps if gap]
        assert words.count("down") + sum(missing) == depth + 1, (words.count("down"), missing)
        assert words.index("work") + 1 == words.index("down"), words[:9]
        assert bool(missing) == (depth > 4096), missing
    assert seen


# A stack of its own in each sample, nearly: the ways through sixteen calls of two functions.
WAYS = """
import itertools, time

def one(n, way):
    go(n, way)

def two(n, way):
    go(n, way)

def go(n, way):
    if n:
        (one if way & 1 else two)(n - 1, way >> 1)
    else:
        end = time.thread_time() + 0.0005
        while time.thread_time() < end:
            pass

print("ready", flush=True)
for i in itertools.count():
    go(16, i)
"""


# The profiler's mode cpu, whose statement of samples takes as long as some hundred of them.
SLOW = r"""
#include <probing/plugin.h>

#define CHOSEN "from python.samples where {when}"

static const struct probing_flame flames[] = {{
    .name = "slow", .doc = "cpu time", .newest = "select max(ts) from python.samples",
    .stacks = "select stack_id, depth, frame_type, func, file, lineno, module from python.stacks "
              "where stack_id in (select stack_id " CHOSEN ") order by stack_id, depth",
    .sql = "select ts, thread_id, thread_name, stack_id, cpu_ns as value, 1 as count " CHOSEN
           " and (select count(*) from generate_series(1, 4000000)) > 0",
    .unit = PROBING_NS}};
static const struct probing_declarations declares = {
    .size = sizeof(declares), .n_flames = 1, .flame_size = sizeof(flames[0]), .flames = flames};

static int init(const struct probing_host *host, void **ret_self)
{
    *ret_self = (void *)host;
    return 0;
}

static void destroy(void *self)
{
    (void)self;
}

PROBING_EXPORT const struct probing_plugin probing_plugin_v1 = {
    .size = sizeof(struct probing_plugin), .abi = PROBING_ABI, .name = "slow", .version = "1",
    .doc = "d", .init = init, .destroy = destroy, .declares = &declares};
"""


def test_last_is_of_one_moment(world):
    """Samples come between the statements of a picture; none of them loses its stack by that."""
    plugin = world.plugin("slow", SLOW)
    target = world.python(WAYS, DEBIAN_PYTHON)
    target.wait_line("ready")
    target.inject("--plugin", "profile")
    assert target.probing("plugin", "load", str(plugin)).returncode == 0
    wait_for(lambda: target.rows("select max(ts) - min(ts) > interval '1500 ms' from "
                                 "python.samples") == [[1]], "samples of more than a second")
    done = target.probing("flamegraph", "slow", "--last", "1s", "-f", "folded")
    assert done.returncode == 0 and done.stdout and "left out" not in done.stderr, done.stderr
    address = target.probing("config", "server.listen=127.0.0.1:0").stdout.split("=")[1].strip()
    token, = world.data.glob("**/token")
    request = urllib.request.Request("http://%s/flamegraph?mode=slow&last=1s" % address,
                                     headers={"Authorization": "Bearer " + token.read_text()})
    with urllib.request.urlopen(request, timeout=LIMIT) as answer:
        page = answer.read().decode()
    assert "cpu time" in page and "left out" not in page


def test_starts_the_profiler_and_puts_it_back(world):
    target = world.start(helper("natives"))
    target.wait_line("ready")
    target.inject()
    done = target.probing("flamegraph", "--seconds", "1.5", "--format", "folded", "--rate", "200")
    assert done.returncode == 0, done.stderr
    assert share(folded(done.stdout), "work") > 0.9
    state = target.rows("select state from probing.plugins where name = 'profile'")
    assert state == [["stopped"]]
    # and where it runs already, mode and rate are as they were
    assert target.probing("plugin", "load", "profile").returncode == 0
    assert target.probing("config", "profile.rate=50").returncode == 0
    done = target.probing("flamegraph", "--seconds", "1", "--format", "folded", "--rate", "200",
                          "--mode", "wall")
    assert done.returncode == 0, done.stderr
    text = target.probing("profile").stdout
    assert text.startswith("mode cpu, 50 samples a second"), text


def test_wrong_words(world):
    for arguments, word in (
            (["--format", "png"], "html, svg"), (["--mode", "slow"], "cpu, wall"),
            (["--since", "yesterday"], "UTC"), (["nonsense"], "diff"), (["diff", "a"], "two"),
            (["--seconds", "1", "--last", "2s"], "not both")):
        target = world.targets[0] if world.targets else world.start(helper("natives"))
        if len(world.targets) == 1 and not getattr(target, "entered", False):
            target.wait_line("ready")
            target.inject()
            target.entered = True
        done = target.probing("flamegraph", *arguments)
        assert done.returncode in (1, 2) and word in done.stderr, done.stderr
