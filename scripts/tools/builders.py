# SPDX-License-Identifier: Apache-2.0
"""The words that SConscripts use: Part, Packed, Module, Static, UnitTests and the aliases.

A SCons tool (SConstruct loads it), so that a folder's SConscript stays a few lines and new files
need no line at all.  It reads the environment's MODE, BUILD, FLOOR, DEPS and fills TESTS,
PRODUCTS and INSTALLED (packages.py); it starts nothing by itself.
"""
import atexit
import hashlib
import os
import subprocess
import sys

from SCons.Script import COMMAND_LINE_TARGETS, Action, Alias, AlwaysBuild, GetOption, Progress

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import packages  # noqa: E402

# In the order a linker wants them: who needs something stands before who has it.
LIBRARIES = ("websockets", "z", "lua", "lmdb", "unwind-ptrace", "unwind-generic", "unwind")
WRAPPED = ("malloc", "calloc", "realloc", "aligned_alloc", "posix_memalign", "strdup", "strndup")
# Functions of libwebsockets that core/compat puts right, in every program with the server.
LWS_WRAPPED = ("lws_cancel_service_pt", "lws_close_free_wsi", "lws_ssl_capable_read_no_ssl")
# Objects that a release calls instead of libc.
COMPAT = ("$BUILD/core/compat/glibc.o", "$BUILD/core/compat/kernel.o")
# Real libraries before glibc 2.34, empty ones since; so named they load in the right order in both.
OLD_GLIBC = ("-Wl,--push-state,--no-as-needed -l:libpthread.so.0 -l:libdl.so.2 "
             "-Wl,--pop-state").split()

# The versions of the compilers that have built it.
NEWEST_TRIED = {"gcc": 14, "clang": 14}
# Before tests in Python: other Pythons and another torch; building one from its sources takes long.
NEWER = "sh scripts/tools/newer_python.sh %s; PROBING_TEST_TORCH=$$(sh scripts/tools/" \
    "newer_torch.sh) " % ("--free-threaded" if "full" in COMMAND_LINE_TARGETS else "")


def version():
    """Said once, in the file VERSION."""
    with open("VERSION") as text:
        return text.read().strip()


def digest_of_sources():
    """A digest of all that goes into libprobing.so, the plugins and the command."""
    found = ["SConstruct", "VERSION"]
    for top in ("core", "cli", "sdk", "include", "plugins", "scripts"):
        for folder, folders, names in os.walk(top):
            folders[:] = [f for f in folders if f not in ("__pycache__", "golden", "package")]
            found += [os.path.join(folder, n) for n in names
                      if not n.endswith(("_test.c", ".pyc")) and not n.startswith(".")]
    digest = hashlib.sha256()
    for path in sorted(found):
        with open(path, "rb") as source:
            digest.update(b"%s\0%s\0" % (path.encode(), hashlib.sha256(source.read()).digest()))
    return digest.hexdigest()[:12]


def is_test(node):
    return node.name.endswith("_test.c")


def has_main(_, node):
    return "\nint main(" in node.get_text_contents()


def glob(env, *patterns):
    """Files of this SConscript's folder, in an order that does not depend on the disk."""
    found = {str(n): n for p in patterns for n in env.Glob(p)}
    return [found[k] for k in sorted(found) if found[k].name != "pack.c"]  # that one is made


def floor_map(env):
    """The list of symbol renames that lets a build run on glibc 2.17."""
    target = env.File("$BUILD/glibc.map")
    if not target.has_builder():
        script = env.File("#scripts/tools/glibc_floor.py")
        env.Command(target, [script, "#core/compat/glibc.c", "#core/compat/kernel.c"],
                    Action("/usr/bin/python3 ${SOURCES[0]} map $CC ${SOURCES[1:]} > $TARGET",
                           "floor $TARGET"))
    return target


def compiled(env, sources):
    """Objects of C sources, bound to old versions of libc's symbols in a release."""
    objects = [env.SharedObject(s)[0] for s in sources]
    if env["FLOOR"] and objects:
        names = floor_map(env)
        for node in objects:
            env.Depends(node, names)
            rename = "$OBJCOPY --redefine-syms=%s $TARGET" % names.path
            env.AddPostAction(node, Action(rename, None))
    return objects


def packed(env, folder, *patterns):
    """Texts of a folder as C: the object of a generated FOLDER/pack.c, beside a pack.h."""
    files = glob(env, *patterns)
    if not files:
        return []
    script = env.File("#scripts/tools/pack.py")
    made = env.Command([folder + "/pack.c", folder + "/pack.h"], files,
                       Action("/usr/bin/python3 %s $TARGETS %s ${SOURCES.srcpath}" %
                              (script.path, env.Dir(folder).srcnode().path), "pack $TARGET"))
    env.Depends(made, script)
    return compiled(env, [made[0]])


def wraps(names):
    return ["-Wl," + ",".join("--wrap=" + n for n in names)]


def unit_tests(env, sources, objects=(), build_env=None):
    """One program for each x_test.c, with the given objects and all of core behind it."""
    build_env = build_env or env
    common = env.File("$BUILD/tests/fail_alloc.o")
    for source in sources:
        name = os.path.relpath(source.srcnode().abspath, env["ROOT"].abspath)
        program = env.Program("$BUILD/tests/" + name[:-2].replace(os.sep, "-"),
                              compiled(build_env, [source]) + list(objects) + [common],
                              LIBS=[env.File("$BUILD/libcore.a")] + env.Static() + ["m", "dl"],
                              LINKFLAGS=env["LINKFLAGS"] + wraps(WRAPPED) + env["LWS_WRAPS"])
        env["TESTS"].extend(program)


def helper_program(env, source, objects=()):
    """A program for tests and authors: <folder>/<name>.c becomes <build>/<folder>/<name>."""
    name = os.path.relpath(source.srcnode().abspath, env["ROOT"].abspath)[:-2]
    return env.Program("$BUILD/" + name, compiled(env, [source]) + list(objects),
                       LIBS=[env.File("$BUILD/libcore.a")] + env.Static() + ["m", "dl"],
                       LINKFLAGS=env["LINKFLAGS"] + env["LWS_WRAPS"])


def part(env, pack=(), exclude=(), patterns=("*.c",)):
    """The objects of this folder's sources and packed texts; its *_test.c become unit tests."""
    sources = [n for n in glob(env, *patterns) if n.name not in exclude]
    unit_tests(env, [n for n in sources if is_test(n)])
    return compiled(env, [n for n in sources if not is_test(n)]) + packed(env, ".", *pack)


def module(env, target, objects):
    """A plugin, linked as anybody would link one."""
    flags = ["-Wl,--exclude-libs,ALL", "-Wl,--build-id", "-static-libgcc"]
    flags += OLD_GLIBC * env["FLOOR"]
    return env.LoadableModule(target, objects, SHLIBPREFIX="", LDMODULEPREFIX="",
                              LIBS=[env.File("$BUILD/libprobing_sampling.a"),
                                    env.File("$BUILD/libprobing_lib.a")]
                              + env.Static()[-len(COMPAT):] * env["FLOOR"] + ["m", "dl"],
                              LINKFLAGS=env["LINKFLAGS"] + flags)


def command(env, target, objects, libraries):
    """A program for users; in a release its start file is bound to the old start of libc."""
    flags = ["-static-libgcc", "-Wl,--build-id"]
    if env["FLOOR"]:
        start = env.Command("$BUILD/deps/start.o", toolchain_file(env, "Scrt1.o"),
                            Action("$OBJCOPY --redefine-sym __libc_start_main="
                                   "floor___libc_start_main $SOURCE $TARGET", "floor $TARGET"))
        crti, begin, end, crtn = [toolchain_file(env, n)
                                  for n in ("crti.o", "crtbeginS.o", "crtendS.o", "crtn.o")]
        objects = ([start[0], crti, begin] + objects
                   + [env.File("$BUILD/core/compat/libc_start.o"), end, crtn])
        flags += ["-nostartfiles", "-pie"] + OLD_GLIBC
        for name in ("open", "open64", "openat"):  # which others send to the core's descriptors
            flags += wraps([name]) + ["-Wl,--defsym=__wrap_%s=kernel_%s" % (name, name)]
    return env.Program(target, objects, LIBS=libraries + ["m", "dl"],
                       LINKFLAGS=env["LINKFLAGS"] + flags)


def toolchain_file(env, name):
    """Path of a file that comes with the compiler."""
    return subprocess.run(env["CC"].split() + ["-print-file-name=" + name], stdout=subprocess.PIPE,
                          check=True).stdout.decode().strip()


def static(env):
    """The libraries that become part of what we link, in a release bound to old symbols too."""
    made = [env.File("$BUILD/libprobing_lib.a")]  # sdk/lib
    sources = [env.File("$DEPS/lib/lib%s.a" % name) for name in LIBRARIES]
    if not env["FLOOR"]:
        return made + with_lws_compat(env, sources)
    for source in sources + [env.File(toolchain_file(env, "libgcc_eh.a"))]:
        target = env.File("$BUILD/deps/" + source.name)
        if not target.has_builder():
            env.Command(target, [source, floor_map(env)],
                        Action("$OBJCOPY --redefine-syms=${SOURCES[1]} ${SOURCES[0]} $TARGET",
                               "floor $TARGET"))
        made.append(target)
    return made[:1] + with_lws_compat(env, made[1:]) + [env.File(name) for name in COMPAT]


def with_lws_compat(env, libraries):
    """Behind libwebsockets what wraps it, and again libwebsockets, which that calls."""
    return libraries[:1] + [env.File("$BUILD/libcompat_lws.a")] + libraries


def builds_asked(env):
    """(mode, compiler, folder) of each build: the options' own first, then what targets need."""
    cc = env["CC"]
    known = {"clang": ("release", "clang"), "asan": ("asan", cc), "tsan": ("tsan", cc)}
    asked = [(env["mode"], cc)]
    for name, build in known.items():
        if {name, "full"} & set(COMMAND_LINE_TARGETS) and build not in asked:
            asked.append(build)
    return [(mode, cc, folder_of(env, mode, cc)) for mode, cc in asked]


def werror(env, cc):
    """Warnings are errors, but not those of a compiler that is newer than all that have been tried:
    they must not keep people from building."""
    asked = subprocess.run([cc, "-dumpversion"], stdout=subprocess.PIPE,
                           universal_newlines=True, check=False)
    major = asked.stdout.split(".")[0].strip()
    newest = NEWEST_TRIED["clang" if "clang" in cc else "gcc"]
    return [] if major.isdigit() and int(major) > newest else ["-Werror"]


def folder_of(env, mode, cc):
    """release, asan, clang, clang-asan, aarch64, aarch64-clang-debug: under build/."""
    words = [env["arch"]] * env["FOREIGN"] + ["clang"] * ("clang" in cc)
    return "-".join(words + [mode] * (mode != "release" or not words))


def test_aliases(env, known):
    """The tiers: build what they need, then let run_tests.py run it.  known: the list of compiled
    sources, for what reads sources; only test needs the programs that Python tests start."""
    programs = [t for t in env["TESTS"] if env["only"] in t.name]
    products = list(env["PRODUCTS"].values())
    env.Alias("unit", env["TESTS"] + env["HELPERS"])
    units = "PROBING_TEST_FULL=1 " * ("full" in COMMAND_LINE_TARGETS) + \
        "/usr/bin/python3 scripts/tools/run_tests.py --build %s" % env["BUILD"]
    units += " --only '%s'" % env["only"] if env["only"] else ""
    if env["MODE"] == "asan":  # and bytes that are no good; Python itself is not sanitized
        fuzz = [n for n in env["HELPERS"] if "fuzz" in n.path or n.name == "bare.so"]
        tier(env, "asan", programs + fuzz,
             "PROBING_BUILD=%s %s --python tests/fuzz/test_fuzz.py" % (env["BUILD"], units))
    elif env["MODE"] == "tsan":
        tier(env, "tsan", programs, units + " --no-python")
    elif "clang" in env["CC"]:
        tier(env, "clang", env["TESTS"] + env["HELPERS"] + products, units + " --no-python")
    if not env["MAIN"]:
        return
    packages_made = [Alias(p) for p in ("wheel", "deb", "tarball")]
    tier(env, "check", programs + products, units + " --python tests/meta")
    tier(env, "test", programs + products + env["HELPERS"] + packages_made + known,
         env["NEWER"] + units)
    tier(env, "tidy", [env["PRODUCTS"]["libprobing"]] + known,  # packed texts have headers
         "/usr/bin/python3 scripts/tools/check_clang.py --tidy")
    tier(env, "docs", [], "/usr/bin/python3 scripts/tools/docs_site.py")
    env.Alias("full", [Alias(name) for name in ("test", "clang", "asan", "tsan", "tidy", "soak",
                                                "truth")])


def tier(env, name, needed, command):
    """An alias that runs a command each time it is asked for; no two of them at once."""
    AlwaysBuild(env.Alias(name, needed, command))
    env.SideEffect("#build/.one_tier_at_a_time", Alias(name))


def show_progress():
    """`scons -s wheel` is silent for minutes: on a terminal a line shows what it has come to, and
    goes at the end."""
    if GetOption("silent") and sys.stderr.isatty():
        Progress(lambda node: print("\r%-78.78s" % node, end="", file=sys.stderr, flush=True))
        atexit.register(print, "\r%78s\r" % "", end="", file=sys.stderr)


def generate(env):
    show_progress()
    words = {"Part": part, "Packed": packed, "Sorted": glob, "Compiled": compiled,
             "Module": module, "UserProgram": command,
             "HelperProgram": helper_program,
             "HasMain": has_main, "Static": static, "UnitTests": unit_tests,
             "BuildsAsked": builds_asked, "Werror": werror, "Tier": tier,
             "TestAliases": test_aliases, "LicensesText": packages.licenses_text,
             "InstallAliases": packages.install_aliases}
    for name, function in words.items():
        env.AddMethod(function, name)
    # A build is the same byte for byte in whatever folder; the shell says which one this is, so
    # that a copy of a build folder is not built again.
    env.Append(CCFLAGS=['"-ffile-prefix-map=$$PWD=."'])
    env["OLD_GLIBC"] = OLD_GLIBC
    env["COMPAT"] = COMPAT
    env["LWS_WRAPS"] = wraps(LWS_WRAPPED)
    env["NEWER"] = NEWER
    env["VERSION"] = version()
    env["SOURCES_DIGEST"] = digest_of_sources()


def exists(env):
    return True
