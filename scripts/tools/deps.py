#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Fetch and build the static libraries that libprobing.so is made of.

usage: deps.py [--force] [--tools=PREFIX] [DIR]      DIR is build/deps beside this checkout
       deps.py --fetch DIR                           only the pinned tarballs, into DIR
           PREFIX: of a cross compiler's tools, such as aarch64-linux-gnu-
           PROBING_DEPS_DIR=FOLDER has what --fetch brought: no network is asked

Leaves DIR/include, DIR/lib/*.a, DIR/licenses/*.txt and DIR/versions.txt (what was used, from where,
its sha256).
Every archive is position independent, hidden and has a section per function.  Sources come from
the distribution's signed source packages; else from the tarballs pinned in core/deps.lock; LMDB at
last from the distribution's ready archive (Lua is changed: lua_mends.py).  Does nothing when DIR is
up to date.
Needs a C compiler, make, cmake, binutils and tar; runs on CPython 3.8 and later.
"""
import configparser
import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import urllib.request

import licenses
import lua_mends

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LOCK = os.path.join(ROOT, "core", "deps.lock")
BUNDLED = os.path.join(ROOT, "deps")  # where a source archive has the pinned tarballs
GIVEN = os.environ.get("PROBING_DEPS_DIR")  # where a packager has them
POLL = os.path.join(ROOT, "core", "script", "poll.h")
# Shims of version managers may stand before the distribution's own tools; prefer those.
PATH = "/usr/bin:/bin:/usr/sbin:/sbin:" + os.environ.get("PATH", "")
TOOLS = ([a[8:] for a in sys.argv if a.startswith("--tools=")] or [""])[0]
CC = TOOLS + os.environ.get("CC", "gcc")
CFLAGS = "-O2 -g -fPIC -fvisibility=hidden -ffunction-sections -fdata-sections"
USR = "/usr"  # where the distribution's ready archives are, should all else fail
JOBS = str(os.cpu_count() or 1)
# Beside the machine's own sources, which may be Ubuntu's: Debian's, and the archive of it that
# drops no version.  What comes is held against the pinned hash.
POOLS = ("http://deb.debian.org/debian/pool/",
         "https://snapshot.debian.org/archive/debian/20250520T000000Z/pool/")
LIBRARIES = ("lua", "lmdb", "zlib", "libwebsockets", "libunwind")


class Failure(Exception):
    """One dependency could not be had in one way; the text says why."""


def say(text):
    print("deps: " + text, flush=True)


def run(command, cwd, log):
    """Run one tool, its output into a log file; show the end of the log when it fails."""
    env = dict(os.environ, PATH=PATH, LC_ALL="C")
    env.pop("MAKEFLAGS", None)
    with open(log, "ab") as out:
        out.write(("\n$ " + " ".join(command) + "\n").encode())
        out.flush()
        try:
            rc = subprocess.call(command, cwd=cwd, env=env, stdin=subprocess.DEVNULL,
                                 stdout=out, stderr=out)
        except OSError as error:
            raise Failure("%s: %s" % (command[0], error.strerror))
    if rc:
        with open(log, errors="replace") as text:
            tail = text.read()[-2000:]
        raise Failure("'%s' failed (%s):\n%s" % (" ".join(command)[:120], log, tail))


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as data:
        for block in iter(lambda: data.read(1 << 20), b""):
            digest.update(block)
    return digest.hexdigest()


def version_tuple(text):
    return tuple(int(n) for n in re.findall(r"\d+", text)[:3])


# ---------------------------------------------------------------- where the sources come from

def apt_stanzas():
    """All (uri, suite, components, signed_by) of the machine's own binary package sources."""
    folder = "/etc/apt/sources.list.d"
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    for path in ["/etc/apt/sources.list"] + [os.path.join(folder, n) for n in names]:
        if not os.path.isfile(path):
            continue
        with open(path) as source:
            text = re.sub(r"^#.*\n?", "", source.read(), flags=re.M)
        if path.endswith(".sources"):
            for block in re.split(r"\n\s*\n", text):
                field = dict(re.findall(r"^([\w-]+):[ \t]*(.*)$", block, flags=re.M))
                if "deb" in field.get("Types", "").split():
                    for suite in field.get("Suites", "").split():
                        yield (field["URIs"].split()[0], suite, field.get("Components", ""),
                               field.get("Signed-By", ""))
        elif path.endswith(".list"):
            line = r"^deb\s+(?:\[(.*?)\]\s+)?(\S+)\s+(\S+)\s+(.*)$"
            for options, uri, suite, components in re.findall(line, text, flags=re.M):
                signed = re.search(r"signed-by=(\S+)", options)
                yield uri, suite, components, signed[1] if signed else ""


def codename():
    with open("/etc/os-release") as release:
        found = re.search(r"^VERSION_CODENAME=(\S+)", release.read(), flags=re.M)
    return found[1] if found else ""


def apt_options(scratch):
    """Options that make apt work in a scratch folder with source lists of its own."""
    own = [s for s in apt_stanzas() if s[1] == codename()]
    if not own or not shutil.which("apt-get", path=PATH):
        raise Failure("no distribution source list on this machine")
    for part in ("lists/partial", "cache/archives/partial"):
        os.makedirs(os.path.join(scratch, part), exist_ok=True)
    with open(os.path.join(scratch, "src.list"), "w") as out:
        for uri, suite, components, signed in own:
            key = "[signed-by=%s] " % signed if signed else ""
            out.write("deb-src %s%s %s %s\n" % (key, uri, suite, components))
    return ["-q", "-o", "Dir::Etc::sourcelist=%s/src.list" % scratch,
            "-o", "Dir::Etc::sourceparts=/dev/null",
            "-o", "Dir::State::lists=%s/lists" % scratch, "-o", "Dir::Cache=%s/cache" % scratch,
            "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=2"]


def apt_fetch(work, locks, log):
    """Download every source package that the mirror really has; a 404 concerns one file only."""
    scratch = os.path.join(work, "apt")
    options = apt_options(scratch)
    run(["apt-get"] + options + ["update"], work, log)
    for lock in locks.values():
        folder = os.path.join(work, "from-apt", lock["source"])
        os.makedirs(folder, exist_ok=True)
        try:
            run(["apt-get"] + options + ["source", "--download-only", lock["source"]], folder, log)
        except Failure:
            say("the archive does not hold all of %s" % lock["source"])


def find_one(folder, pattern):
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    found = [os.path.join(folder, n) for n in names if re.search(pattern, n)]
    return found[0] if found else None


def unpack_tar(tarball, into):
    with tarfile.open(tarball) as tar:
        for member in tar.getmembers():
            name = os.path.normpath(member.name)
            if name.startswith(("/", "..")):
                raise Failure("%s holds the path %s" % (tarball, member.name))
        tar.extractall(into)


def unpack_apt(work, lock, tree, log):
    """Unpack what apt brought (it checked the hashes); with the distribution's patches if whole."""
    folder = os.path.join(work, "from-apt", lock["source"])
    orig = find_one(folder, r"\.orig\.tar\.(gz|bz2|xz)$")
    if not orig:
        raise Failure("the distribution gave no source")
    version = re.search(r"_([^_]+?)\.orig", orig)[1]
    if version_tuple(version) < version_tuple(lock["minimum"]):
        raise Failure("the distribution has %s, at least %s is needed" % (version, lock["minimum"]))
    dsc = find_one(folder, r"\.dsc$")
    if dsc and shutil.which("dpkg-source", path=PATH):
        try:
            run(["dpkg-source", "--no-check", "-x", dsc, tree], folder, log)
            return version, sha256(orig), "distribution, " + os.path.basename(dsc)
        except Failure:
            shutil.rmtree(tree, ignore_errors=True)
    unpack_tar(orig, tree)
    return version, sha256(orig), "distribution, without its patches"


def bundled(lock):
    """Path of the pinned tarball where it came with the sources or from the packager; or None.
    Failure: he has said where it is, and it is not there."""
    for folder in [GIVEN] * bool(GIVEN) + [BUNDLED]:
        path = os.path.join(folder, lock["file"])
        if os.path.exists(path) and sha256(path) == lock["sha256"]:
            return os.path.abspath(path)
    if GIVEN:
        path = os.path.join(GIVEN, lock["file"])
        raise Failure("PROBING_DEPS_DIR: %s %s; deps.py --fetch %s brings all, where there is a "
                      "network" % (path, "has another sha256 than " + lock["sha256"]
                                   if os.path.exists(path) else "is not there", GIVEN))
    return None


def fetch_pinned(folder, lock):
    """The tarball of the lock file, from wherever it still is; nothing else is accepted."""
    if bundled(lock):
        return bundled(lock)
    path = os.path.join(folder, lock["file"])
    mirrors = [s[0].rstrip("/") + "/pool/" for s in apt_stanzas() if s[1] == codename()]
    urls = lock["urls"].split() + [p + lock["pool"] + "/" + lock["file"]
                                   for p in mirrors + list(POOLS)]
    for url in urls:
        if os.path.exists(path) and sha256(path) == lock["sha256"]:
            break
        try:
            with urllib.request.urlopen(url, timeout=30) as answer, open(path, "wb") as out:
                shutil.copyfileobj(answer, out)
        except (OSError, ValueError) as error:
            say("%s: %s" % (url, error))
    if not os.path.exists(path) or sha256(path) != lock["sha256"]:
        raise Failure("no place has the pinned %s" % lock["file"])
    return path


def unpack_pinned(work, lock, tree):
    unpack_tar(fetch_pinned(work, lock), tree)
    return lock["version"], lock["sha256"], "pinned tarball"


def holding(tree, name):
    """The folder below `tree` that holds a file called `name`, the one nearest to the top."""
    found = [d for d, _, files in os.walk(tree) if name in files]
    if not found:
        raise Failure("no %s in the source" % name)
    return min(found, key=lambda d: d.count("/"))


# ------------------------------------------------------------------------- how each is built

class Build:
    """One build: the folders, and the sources as they arrive."""

    def __init__(self, deps):
        self.deps = deps
        self.work = os.path.join(deps, "work")
        self.include = os.path.join(self.work, "include")
        self.lib = os.path.join(self.work, "lib")
        self.licenses = os.path.join(self.work, "licenses")
        self.versions = {}
        # The output does not tell in which folder it was made.
        self.cflags = CFLAGS + " -ffile-prefix-map=%s=. -ffile-prefix-map=%s=deps" % (ROOT,
                                                                                      self.work)
        shutil.rmtree(self.work, ignore_errors=True)
        for folder in (self.include, self.lib, self.licenses, os.path.join(self.work, "src")):
            os.makedirs(folder)

    def log(self, name):
        return os.path.join(self.work, name + ".log")

    def tree(self, name):
        return os.path.join(self.work, "src", name)

    def headers(self, folder, *names):
        for name in names:
            shutil.copy(os.path.join(folder, name), os.path.join(self.include, name))

    def archive(self, name, folder, sources, flags):
        """Compile some C files of one folder and put them into lib<name>.a."""
        objects = os.path.join(self.work, "obj", name)
        os.makedirs(objects, exist_ok=True)
        paths = [os.path.join(folder, s) for s in sources]
        run([CC] + self.cflags.split() + flags + ["-c"] + paths, objects, self.log(name))
        made = sorted(os.listdir(objects))
        run([TOOLS + "ar", "rcsD", os.path.join(self.lib, "lib%s.a" % name)] + made, objects,
            self.log(name))


def lua_extra(b):
    """Debian's luaconf.h wants this header; only the default paths of modules use it."""
    with open(os.path.join(b.include, "lua5.4-deb-multiarch.h"), "w") as out:
        out.write('#define DEB_HOST_MULTIARCH ""\n')


def mend_lua(src):
    def fail(text):
        raise Failure(text)
    lua_mends.mend_lua(src, fail)


def build_lua(b):
    # LUA_USE_POSIX and not LUA_USE_LINUX: scripts shall not be able to dlopen.  strcoll() takes a
    # second for a large text in the process's locale; in ours texts are compared by their bytes.
    src = holding(b.tree("lua"), "lua.h")
    mend_lua(src)
    lua_extra(b)
    files = sorted(f for f in os.listdir(src) if f.endswith(".c") and f not in ("lua.c", "luac.c"))
    b.archive("lua", src, files, ["-std=gnu99", "-DLUA_USE_POSIX", "-Dstrcoll=strcmp",
                                    "-I" + b.include, "-include", POLL])
    b.headers(src, "lua.h", "luaconf.h", "lauxlib.h", "lualib.h")


def build_lmdb(b):
    src = holding(b.tree("lmdb"), "mdb.c")
    b.archive("lmdb", src, ["mdb.c", "midl.c"], ["-pthread", "-w"])
    b.headers(src, "lmdb.h")


def build_zlib(b):
    src = holding(b.tree("zlib"), "deflate.c")
    names = "adler32 crc32 deflate inflate inffast inftrees trees zutil".split()
    b.archive("z", src, [n + ".c" for n in names],
              ["-DHAVE_UNISTD_H", "-D_LARGEFILE64_SOURCE=1", "-w"])
    b.headers(src, "zlib.h", "zconf.h")


def close_event_pipe(src):
    """libwebsockets 4.3 leaves the closing of its eventfd to the end of its context, and forgets
    the number before: each eject would leak it."""
    mend(os.path.join(src, "lib", "core-net", "close.c"),
         "\t\tif (pt->dummy_pipe_fds[0] == wsi->desc.sockfd)\n"
         "\t\t\tpt->dummy_pipe_fds[0] = LWS_SOCK_INVALID;\n", "")


def build_libwebsockets(b):
    # LIBCAP is found by itself and would be needed at run time; without AVOID_SIGPIPE_IGN the
    # library ignores SIGPIPE for the whole process, which is not ours to do.
    src = holding(b.tree("libwebsockets"), "CMakeLists.txt")
    close_event_pipe(src)
    out = os.path.join(b.work, "obj", "libwebsockets")
    options = ["-DLWS_%s=ON" % o for o in (
        "WITH_STATIC STATIC_PIC WITHOUT_TESTAPPS WITHOUT_CLIENT AVOID_SIGPIPE_IGN WITH_ZLIB"
    ).split()]
    options += ["-DLWS_%s=OFF" % o for o in (
        "WITH_SSL WITH_SHARED WITH_HTTP2 WITH_EVLIB_PLUGINS IPV6 WITH_SYS_SMD "
        "WITH_HTTP_BASIC_AUTH WITH_EXPORT_LWSTARGETS WITHOUT_EXTENSIONS WITH_NETLINK").split()]
    if TOOLS:
        options += ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=" + TOOLS.split("-")[0],
                    "-DCMAKE_AR=/usr/bin/%sar" % TOOLS]
    # It would write the commit of the checkout around it, which is ours, into itself.
    options += ["-DCMAKE_DISABLE_FIND_PACKAGE_Git=ON", "-DLWS_HAVE_LIBCAP=0",
                "-DLWS_HAVE_MALLOC_TRIM=0", "-DDISABLE_WERROR=ON",
                "-DLWS_ZLIB_LIBRARIES=" + os.path.join(b.lib, "libz.a"),
                "-DLWS_ZLIB_INCLUDE_DIRS=" + b.include]
    run(["cmake", "-S", src, "-B", out, "-G", "Unix Makefiles", "-DCMAKE_BUILD_TYPE=Release",
         "-DCMAKE_C_COMPILER=" + CC, "-DCMAKE_C_FLAGS=%s -w" % b.cflags] + options,
        b.work, b.log("libwebsockets"))
    run(["make", "-j", JOBS, "websockets"], out, b.log("libwebsockets"))
    shutil.copy(os.path.join(holding(out, "libwebsockets.a"), "libwebsockets.a"), b.lib)
    b.headers(os.path.join(src, "include"), "libwebsockets.h")
    b.headers(holding(out, "lws_config.h"), "lws_config.h")
    shutil.copytree(os.path.join(src, "include", "libwebsockets"),
                    os.path.join(b.include, "libwebsockets"))


def mend(path, old, new, unless=None):
    """Replace what stands once in a source; nothing where a version has it otherwise."""
    with open(path) as source:
        text = source.read()
    if text.count(old) == 1 and (unless is None or unless not in text):
        with open(path, "w") as out:
            out.write(text.replace(old, new))


def sign_no_error(src):
    """libunwind before 1.8 takes the aarch64 word for "return addresses are signed from here on"
    (one number with a word of SPARC's) for an error; core/stack takes the signs off by itself."""
    word = "case DW_CFA_GNU_window_save:\n"
    mend(os.path.join(src, "src", "dwarf", "Gparser.c"), word,
         word + "#ifdef UNW_TARGET_AARCH64\n          break;\n#endif\n", "negate_ra_state")


def build_libunwind(b):
    src = holding(b.tree("libunwind"), "configure")
    out = os.path.join(b.work, "obj", "libunwind")
    stage = os.path.join(b.work, "stage")
    os.makedirs(out)
    off = "shared minidebuginfo zlibdebuginfo cxx-exceptions tests documentation coredump setjmp"
    sign_no_error(src)
    host = ["--host=" + TOOLS.rstrip("-")] if TOOLS else []
    run([os.path.join(src, "configure"), "--prefix=" + stage, "--libdir=" + stage + "/lib",
         "--enable-static", "--with-pic", "--enable-ptrace", "CC=" + CC,
         "CFLAGS=%s -fcommon -w" % b.cflags] + ["--disable-" + o for o in off.split()] + host,
        out, b.log("libunwind"))
    # A tarball's generated files may look older than their sources; they are not.
    never = [v + "=:" for v in ("AUTOCONF", "AUTOMAKE", "ACLOCAL", "AUTOHEADER", "MAKEINFO")]
    run(["make", "-j", JOBS] + never, out, b.log("libunwind"))
    run(["make", "install"] + never, out, b.log("libunwind"))
    for name in sorted(os.listdir(stage + "/include")):
        if name != "unwind.h":  # it would hide the compiler's own
            b.headers(stage + "/include", name)
    for name in sorted(os.listdir(stage + "/lib")):
        if name.endswith(".a"):
            shutil.copy(os.path.join(stage, "lib", name), b.lib)


def build_from_archive(b, name):
    """LMDB from the distribution's ready archive.

    It was compiled for programs, so its one sin is to reach libc's variables directly.  Give it
    hidden variables of its own instead; a constructor fills them before anything runs.
    """
    multi = subprocess.run([CC, "-print-multiarch"], stdout=subprocess.PIPE, check=True)
    source = USR + "/lib/%s/lib%s.a" % (multi.stdout.decode().strip(), name)
    if not os.path.exists(source):
        raise Failure("and no ready archive of it is installed")
    glue = os.path.join(b.work, name + "_stdio.c")
    streams = ("stdin", "stdout", "stderr")
    hidden = '__attribute__((visibility("hidden")))'
    with open(glue, "w") as out:
        out.write("#include <stdio.h>\n")
        for s in streams:
            out.write("%s FILE *%s_%s;\n" % (hidden, name, s))
        out.write("__attribute__((constructor(101))) static void fill(void)\n{\n")
        out.write("".join("    %s_%s = %s;\n" % (name, s, s) for s in streams) + "}\n")
    target = os.path.join(b.lib, "lib%s.a" % name)
    renames = ["--redefine-sym=%s=%s_%s" % (s, name, s) for s in streams]
    run([TOOLS + "objcopy"] + renames + [source, target], b.work, b.log(name))
    run([CC] + b.cflags.split() + ["-c", glue, "-o", glue[:-2] + ".o"], b.work, b.log(name))
    run([TOOLS + "ar", "rsD", target, glue[:-2] + ".o"], b.work, b.log(name))
    b.headers(USR + "/include", "lmdb.h")
    shutil.copy(USR + "/share/doc/lib%s-dev/copyright" % name, b.licenses + "/%s.txt" % name)
    return "installed", sha256(source), source


# ----------------------------------------------------------------------------- the whole of it

def get_source(b, name, lock):
    if bundled(lock):
        return unpack_pinned(b.work, lock, b.tree(name))
    try:
        return unpack_apt(b.work, lock, b.tree(name), b.log(name))
    except Failure as why:
        say("%s: %s; trying the pinned tarball" % (name, why))
        shutil.rmtree(b.tree(name), ignore_errors=True)
        return unpack_pinned(b.work, lock, b.tree(name))


def make_one(b, name, lock):
    """Get and build one library, by the first way that works."""
    try:
        b.versions[name] = get_source(b, name, lock)
        globals()["build_" + name](b)
        tree = b.tree(name)
        inside = [os.path.join(tree, d) for d in sorted(os.listdir(tree))]
        if not any(licenses.collect(name, t, b.licenses) for t in [tree] + inside):
            raise Failure("its source tells no licence")
    except Failure as why:
        if name != "lmdb":
            raise
        say("%s: %s; trying the distribution's archive" % (name, why))
        b.versions[name] = build_from_archive(b, name)
    say("%s %s (%s)" % ((name,) + (b.versions[name][0], b.versions[name][2])))


def make_all(b, locks):
    """Two lines of work side by side; the server library needs zlib before it."""
    failures = []

    def work(names):
        for name in names:
            try:
                make_one(b, name, locks[name])
            except (Failure, OSError, tarfile.TarError) as why:
                failures.append("%s: %s" % (name, why))
                return

    lines = [threading.Thread(target=work, args=(names,)) for names in
             (["libunwind"], ["zlib", "lmdb", "lua", "libwebsockets"])]
    for line in lines:
        line.start()
    for line in lines:
        line.join()
    if failures:
        raise Failure("\n".join(failures))


def recipe():
    """All that a finished folder depends on, as one text."""
    compiler = subprocess.run([CC, "--version"], stdout=subprocess.PIPE, check=True).stdout
    data = compiler + (TOOLS + platform.machine()).encode()
    for path in (__file__, LOCK, licenses.__file__, lua_mends.__file__, POLL):
        with open(path, "rb") as part:
            data += part.read()
    return hashlib.sha256(data).hexdigest()


def is_current(deps, stamp):
    path = os.path.join(deps, "stamp")
    if not os.path.exists(path):
        return False
    with open(path) as old:
        return old.read().strip() == stamp


def install(b, stamp):
    """Put the finished folders in their place; until here the old ones were still usable."""
    with open(os.path.join(b.deps, "versions.txt"), "w") as out:
        for name in LIBRARIES:
            out.write("%-14s %-10s %s  %s\n" % ((name,) + (b.versions[name][0],
                                                          b.versions[name][1],
                                                          b.versions[name][2])))
    for new in (b.include, b.lib, b.licenses):
        old = os.path.join(b.deps, os.path.basename(new))
        shutil.rmtree(old, ignore_errors=True)
        os.rename(new, old)
    with open(os.path.join(b.deps, "stamp"), "w") as out:
        out.write(stamp + "\n")
    shutil.rmtree(b.work)


def fetch_all(folder, locks):
    os.makedirs(folder, exist_ok=True)
    try:
        for lock in locks.values():
            path = fetch_pinned(folder, lock)
            if os.path.dirname(path) != folder:
                shutil.copy(path, folder)
    except Failure as why:
        say(str(why))
        return 1
    return 0


def main(arguments):
    force = "--force" in arguments
    rest = [a for a in arguments if not a.startswith("--")]
    deps = os.path.abspath(rest[0] if rest else os.path.join(ROOT, "build", "deps"))
    locks = configparser.ConfigParser()
    locks.read(LOCK)
    locks = {name: locks[name] for name in LIBRARIES}
    if "--fetch" in arguments:
        return fetch_all(deps, locks)
    stamp = recipe()
    if is_current(deps, stamp) and not force:
        return 0
    try:
        offline = all([bundled(lock) for lock in locks.values()])
        b = Build(deps)
        try:
            if not offline:
                apt_fetch(b.work, locks, b.log("apt"))
        except Failure as why:
            say(str(why))
        make_all(b, locks)
    except Failure as why:
        say("cannot go on\n%s" % why)
        return 1
    install(b, stamp)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
