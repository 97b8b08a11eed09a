# SPDX-License-Identifier: Apache-2.0
"""libprobing.so, the plugins and the command: what they export, need and weigh."""
import os
import re

import pytest
from product import BUILD, TOOLS, built, output, plugins, tool

# All of these are glibc; the last three are empty in glibc 2.34 and later.
GLIBC = {"libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
         "libpthread.so.0", "libdl.so.2", "librt.so.1"}
CORE_LIMIT_BYTES = 2050 * 1000


def name_of(path):
    return os.path.basename(str(path))


def exported(path):
    lines = output("nm", "-D", "--defined-only", path).splitlines()
    return {line.split()[-1].split("@")[0] for line in lines}


def needed(path):
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "-dW", path)))


def products():
    return [p for p in [os.path.join(BUILD, "libprobing.so"), os.path.join(BUILD, "probing")]
            + plugins() if os.path.exists(p)]


def test_core_exports_only_probing_names():
    names = exported(built("libprobing.so"))
    assert names and all(n.startswith("probing_") for n in names), names


@pytest.mark.parametrize("path", plugins(), ids=name_of)
def test_plugin_exports_its_one_symbol(path):
    assert "probing_plugin_v1" in exported(path)


@pytest.mark.parametrize("path", products(), ids=name_of)
def test_only_glibc_is_needed(path):
    assert needed(path) <= GLIBC


def test_core_is_small(tmp_path):
    stripped = str(tmp_path / "libprobing.so")
    output("strip", "-o", stripped, built("libprobing.so"))
    assert os.path.getsize(stripped) < CORE_LIMIT_BYTES


@pytest.mark.parametrize("path", products(), ids=name_of)
def test_glibc_floor(path):
    if "release" not in BUILD:
        pytest.skip("only a release is bound to old symbols")
    rc, text = tool("/usr/bin/python3", os.path.join(TOOLS, "glibc_floor.py"), "check", path)
    assert rc == 0, text


@pytest.mark.parametrize("path", products(), ids=name_of)
def test_hardening(path):
    dynamic = output("readelf", "-dW", path)
    assert "BIND_NOW" in dynamic and "TEXTREL" not in dynamic
    headers = output("readelf", "-lW", path)
    assert "GNU_RELRO" in headers
    assert re.search(r"GNU_STACK.*\bRW\b", headers)


def test_core_has_no_thread_local_block():
    """A TLS segment in a library that is loaded late can exhaust the target's static TLS."""
    headers = output("readelf", "-lW", built("libprobing.so"))
    sizes = re.findall(r"^\s+TLS\s+\S+\s+\S+\s+\S+\s+\S+\s+(\S+)", headers, flags=re.M)
    assert sum(int(s, 16) for s in sizes) <= 80, "some pointers and a count, and no more"


ALLOCATES = set("""malloc calloc aligned_alloc posix_memalign memalign valloc pvalloc reallocarray
    strdup strndup asprintf vasprintf getline getdelim open_memstream open_wmemstream scandir
    opendir fdopendir readdir qsort get_current_dir_name tempnam""".split())


def test_the_core_takes_no_memory_from_the_programs_allocator():
    """All of it is from core/guest/heap.c; left is what hands back what was not ours, and qsort_r
    where there is no memory at all."""
    lines = output("nm", "-D", "--undefined-only", built("libprobing.so")).splitlines()
    assert not {re.sub("@.*", "", line.split()[-1]) for line in lines} & ALLOCATES


# The calls that we measure by: core/compat/kernel.c has all of these.
MEASURES = re.compile(
    r"clock\w*|gettimeofday|times?|ftime|timespec_get|timer\w*|[gs]etitimer|alarm|\w*sleep|p?poll|"
    r"p?select|epoll_\w*wait\d?|\w+_(timed|clock)(wait|\w*lock)|getrusage|getrandom|getentropy|"
    r"\w*rand\w*|sched_getcpu|getcpu|(__f?x|__lx|[fl])?stat(64|x|at|at64|fs|fs64)?|f?statfs(64)?|"
    r"syscall|p?read|pread64|readlink|readlinkat|process_vm_readv|getrlimit|utimensat|futimens|"
    r"utimes?|wait[34]")


def allowed():
    """The names in libc_functions.txt."""
    found = []
    with open(os.path.join(os.path.dirname(__file__), "libc_functions.txt")) as file:
        groups = file.read().split("\n\n")[1:]
    for group in groups:
        lines = group.strip().split("\n")
        for name in " ".join(lines[1:]).split():
            assert name not in found, name
            found.append(name)
    return set(found)


@pytest.mark.parametrize("path", products(), ids=name_of)
def test_what_measures_is_no_preloaded_librarys(path):
    if "release" not in BUILD:
        pytest.skip("only a release asks the kernel itself")
    called = {re.sub("@.*", "", line.split()[-1])
              for line in output("nm", "-D", "--undefined-only", path).splitlines()}
    assert not {name for name in called if MEASURES.fullmatch(name)}
    assert not called - allowed(), "give each a reason in libc_functions.txt"


def test_no_name_that_measures_is_allowed():
    assert not {name for name in allowed() if MEASURES.fullmatch(name)}
