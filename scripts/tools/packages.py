# SPDX-License-Identifier: Apache-2.0
"""What is installed where, as one table, and what is made of it: install, wheel, deb, rpm, tarball.

A word of SConscripts (builders.py adds it).  A place begins with bin/, lib/probing/, share/ or
include/ below a prefix, or with python/, the folder that Python imports from.
docs/installation.md is about the result.
"""
import json
import os
import subprocess
import sysconfig

from SCons.Script import Action, Alias, AlwaysBuild, Value

import archives
import licenses
import rpm_package
from archives import File

DISTRIBUTION = "libprobing"  # `probing` on PyPI is another project
SUMMARY = "Enter a running Python or PyTorch process and inspect it: stacks, SQL, live Python"
ABOUT = """Enters a running process without restarting it: stacks of all threads, also
of a hung process, SQL over everything measured, live Python, streams."""
PACKAGE = "plugins/python/package/"
# (place, folder of the tree, pattern): all files of it as they are.
TREES = (("lib/probing/scripts", "scripts", "*.lua"),
         ("python/probing", PACKAGE + "probing", "*.py"),
         ("python/probing", PACKAGE + "probing", "*.pyi"),
         ("python/probing", PACKAGE + "probing", "py.typed"),
         ("python", PACKAGE, "libprobing.pth"), ("python", PACKAGE, "libprobing_hook.py"),
         ("include/probing", "include/probing", "*.h"),
         ("include/probing/ext", "include/probing/ext", "*.h"),
         ("include/probing/ext/draft", "include/probing/ext/draft", "*.h"),
         ("include", "sdk", "probing_sdk.h"),
         ("share/probing/sdk", "sdk", "*"),
         ("share/probing/sdk/examples", "sdk/examples", "*.c"),
         ("share/probing/sdk/template", "sdk/template", "*"),
         ("share/doc/probing", "", "*.md"), ("share/doc/probing/docs", "docs", "*.md"))
# (name, about, what a linker is told): what pkg-config reads.
PKG_CONFIG = (("probing", "headers for plugins of probing", ""),
              ("probing-client", "ask a process that has probing in it",
               "Libs: -L${prefix}/lib -lprobing_client\n"))
# Files that the command writes about itself.
WRITTEN = (("man", "share/man/man1/probing.1"),
           ("completion bash", "share/bash-completion/completions/probing"),
           ("completion zsh", "share/zsh/site-functions/_probing"),
           ("completion fish", "share/fish/vendor_completions.d/probing.fish"))


def seconds_of_sources():
    """The time that every packed file gets: what the packager says, or the last commit's, or, in a
    copy without git, that of VERSION."""
    if os.environ.get("SOURCE_DATE_EPOCH", "").isdigit():
        return int(os.environ["SOURCE_DATE_EPOCH"])
    try:
        asked = subprocess.run(["git", "log", "-1", "--format=%ct"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL)
        if asked.returncode == 0 and asked.stdout.strip().isdigit() and os.path.exists(".git"):
            return int(asked.stdout)
    except OSError:
        pass
    return int(os.stat("VERSION").st_mtime)


# ---- what is linked in ----

def linked_in(deps):
    """[(name, version, sha256 of its source, where that came from)]"""
    with open(os.path.join(deps, "versions.txt")) as text:
        return [line.split(None, 3) for line in text.read().splitlines()]


def write_licenses(target, source, env):
    """licenses.txt: ours, then the words of each library, which ask to be kept with its code."""
    deps = env.Dir("$DEPS").abspath
    with open("LICENSE") as own, open(str(target[0]), "w") as out:
        out.write("probing is licensed under the Apache License 2.0, below; linked into it are:\n")
        for name, version, _, origin in linked_in(deps):
            out.write("  %s %s (%s)\n" % (name, version, licenses.OF[name][0]))
        out.write("and parts of the C compiler's libgcc (GPL-3.0 with the GCC runtime library "
                  "exception).\n\n==== probing ====\n\n" + own.read())
        for name, version, _, origin in linked_in(deps):
            with open(os.path.join(deps, "licenses", name + ".txt")) as words:
                out.write("\n==== %s %s ====\n\n%s" % (name, version, words.read()))


def write_sbom(target, source, env):
    """The libraries that are linked in, as CycloneDX 1.5."""
    parts = []
    for name, version, digest, origin in linked_in(env.Dir("$DEPS").abspath):
        part = {"type": "library", "bom-ref": name, "name": name, "version": version,
                "licenses": [{"expression": licenses.OF[name][0]}],
                "externalReferences": [{"type": "website", "url": licenses.OF[name][1]}],
                "purl": "pkg:generic/%s@%s?checksum=sha256:%s" % (name, version, digest),
                "properties": [{"name": "probing:source", "value": origin.strip()},
                               {"name": "probing:source-sha256", "value": digest}]}
        if name in licenses.CHANGED:
            part["pedigree"] = {"notes": "changed: " + licenses.CHANGED[name]}
        parts.append(part)
    own = {"type": "application", "bom-ref": "probing", "name": DISTRIBUTION,
           "version": env["VERSION"], "licenses": [{"license": {"id": "Apache-2.0"}}]}
    bom = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
           "metadata": {"component": own}, "components": parts,
           "dependencies": [{"ref": "probing", "dependsOn": [p["name"] for p in parts]}]}
    with open(str(target[0]), "w") as out:
        json.dump(bom, out, indent=1)
        out.write("\n")


# ---- the table ----

def stripped(env, node):
    """A copy without symbols: what is installed, and what the size test measures."""
    return env.Command("$BUILD/stripped/" + os.path.relpath(str(node), str(env["BUILD"])), node,
                       Action("$STRIP -o $TARGET $SOURCE", "strip $TARGET"))[0]


def pkg_config(env, name, about, libs):
    """The prefix is wherever the file lies, so that $DESTDIR may be moved."""
    text = "prefix=${pcfiledir}/../..\n\nName: %s\nDescription: %s\nVersion: %s\n" \
        "Cflags: -I${prefix}/include\n%s" % (name, about, env["VERSION"], libs)

    def write(target, source, env):
        with open(str(target[0]), "w") as out:
            out.write(source[0].read())
    return env.Command("$BUILD/%s.pc" % name, Value(text), Action(write, "write $TARGET"))[0]


def programs(env):
    """{place: the file as it was linked}"""
    found = {}
    for name, node in env["PRODUCTS"].items():
        if name.startswith("plugin/"):
            found["lib/probing/plugins/%s.so" % name[7:]] = node[0]
    found["bin/probing"] = env["PRODUCTS"]["probing"][0]
    found["lib/probing/libprobing.so"] = env["PRODUCTS"]["libprobing"][0]
    return found


def table(env):
    """{place: node} of all that is installed; INSTALLED has what SConscripts add to it."""
    made = {place: stripped(env, node) for place, node in programs(env).items()}
    made.update(env["INSTALLED"])
    # One of another machine cannot tell about itself here; ours has the same words.
    speaker = env.File("#build/release/probing") if env["FOREIGN"] else \
        env["PRODUCTS"]["probing"][0]
    for words, place in WRITTEN:
        made[place] = env.Command("$BUILD/" + place, speaker,
                                  Action("$SOURCE %s >$TARGET" % words, "write $TARGET"))[0]
        env.Depends(made[place],  # their commands are in it, too
                    [n for p, n in env["PRODUCTS"].items() if p.startswith("plugin/")])
    made["lib/libprobing_client.a"] = env["PRODUCTS"]["client"][0]  # stripped, it links nothing
    for name, about, libs in PKG_CONFIG:
        made["lib/pkgconfig/%s.pc" % name] = pkg_config(env, name, about, libs)
    for place, folder, pattern in TREES:
        for file in env.Glob("#%s/%s" % (folder, pattern)):
            if file.isfile() and file.name != "SConscript":
                made["%s/%s" % (place, file.name)] = file
    made["python/probing/_version.py"] = env.Command(
        "$BUILD/python/_version.py", Value([env["VERSION"], env["SOURCES_DIGEST"]]),
        Action(write_version, "write $TARGET"))[0]
    versions = env.File("$DEPS/versions.txt")
    made["share/doc/probing/sbom.cdx.json"] = env.Command(
        "$BUILD/sbom.cdx.json", [versions, "#scripts/tools/licenses.py"],
        Action(write_sbom, "write $TARGET"))[0]
    return made


def write_version(target, source, env):
    with open(str(target[0]), "w") as out:
        out.write('version = "%s"\nbuild = "%s (build %s)"\n'
                  % (env["VERSION"], env["VERSION"], env["SOURCES_DIGEST"]))


def licenses_text(env):
    """licenses.txt beside the command, as it is beside libprobing.so where it is installed."""
    made = env.Command("$BUILD/licenses.txt",
                       ["#LICENSE", "$DEPS/versions.txt", "#scripts/tools/licenses.py"],
                       Action(write_licenses, "write $TARGET"))
    env["PRODUCTS"]["licenses"] = made
    env["INSTALLED"]["lib/probing/licenses.txt"] = made[0]


# ---- install ----

def python_folder(prefix):
    """The folder below `prefix` in which the system's Python looks for packages."""
    code = "import site; print(*site.getsitepackages(), sep='\\n')"
    asked = subprocess.run(["/usr/bin/python3", "-c", code], stdout=subprocess.PIPE, check=True)
    below = [p for p in asked.stdout.decode().split("\n") if p.startswith(prefix + "/lib/python")]
    general = [p for p in below if "/python3/" in p]  # Debian's, of whatever version
    own = "%s/lib/python%s/site-packages" % (prefix, sysconfig.get_python_version())
    return (general + below + [own])[0]


def install_aliases(env):
    """`scons install`, and the packages."""
    files = table(env)
    package_aliases(env, files)
    install_alias(env, files)


def install_alias(env, files):
    """`scons install`: the table below $DESTDIR$prefix, and the list of what it has put there."""
    def at(place):
        head, _, rest = place.partition("/")
        return python + "/" + rest if head == "python" else env["prefix"] + "/" + place
    python = python_folder(env["prefix"])
    places = env  # SCons gives the action of an alias another one
    files = dict(files)
    listed = sorted(at(p) for p in list(files) + ["lib/probing/files.txt"])
    files["lib/probing/files.txt"] = env.Command(
        "$BUILD/files.txt", Value(listed), Action(write_lines, "write $TARGET"))[0]
    Alias("install", [env.InstallAs(env["DESTDIR"] + at(place), node)
                      for place, node in sorted(files.items())])
    AlwaysBuild(Alias("uninstall", [], Action(
        lambda target, source, env: uninstall(places["DESTDIR"], places["prefix"]),
        "uninstall what is below %s%s" % (env["DESTDIR"], env["prefix"]))))


def uninstall(top, prefix):
    """Remove what files.txt lists, and folders that are then empty.  1: nothing is installed."""
    listing = "%s%s/lib/probing/files.txt" % (top, prefix)
    try:
        with open(listing) as lines:
            paths = [top + line.rstrip("\n") for line in lines]
    except OSError as error:
        print("nothing to uninstall: %s: %s" % (listing, error.strerror))
        return 1
    for path in paths:
        try:
            os.remove(path)
        except FileNotFoundError:  # the user was faster
            pass
    for folder in sorted({os.path.dirname(path) for path in paths}, key=len, reverse=True):
        while folder.startswith(top + prefix + "/"):
            try:
                os.rmdir(folder)
            except OSError:  # others have files there, or it has gone
                break
            folder = os.path.dirname(folder)
    return 0


def write_lines(target, source, env):
    with open(str(target[0]), "w") as out:
        out.write("".join(line + "\n" for line in source[0].read()))


# ---- packages ----

def read_files(source, places):
    """The nodes as files to be packed."""
    made = []
    for node, place in zip(source, places):
        with open(str(node), "rb") as data:
            made.append(File(place, data.read(), 0o755 if place.startswith("bin/") else 0o644))
    return made


def make_wheel(files, env):
    """pip's schemes: scripts go to bin/, data to the prefix, all else to site-packages."""
    data = "%s-%s.data/" % (DISTRIBUTION, env["VERSION"])
    info = "%s-%s.dist-info/" % (DISTRIBUTION, env["VERSION"])
    heads = (("lib/probing/", "probing/_native/"), ("python/", ""),
             ("bin/", data + "scripts/"), ("share/man/", data + "data/share/man/"),
             ("share/bash-completion/", data + "data/share/bash-completion/"),
             ("share/zsh/", data + "data/share/zsh/"),
             ("share/fish/", data + "data/share/fish/"),
             ("share/doc/probing/sbom.cdx.json", info + "sboms/libprobing.cdx.json"))
    packed = []
    for f in files:
        head = [h for h in heads if f.name.startswith(h[0])]
        if head:
            packed.append(f._replace(name=head[0][1] + f.name[len(head[0][0]):]))
        if f.name == "lib/probing/licenses.txt":
            packed.append(f._replace(name=info + "licenses/LICENSE"))
    with open("README.md") as readme:
        text = ("Metadata-Version: 2.1\nName: %s\nVersion: %s\nSummary: %s\nLicense: Apache-2.0\n"
                "Requires-Python: >=3.8\nLicense-File: LICENSE\n"
                "Classifier: Operating System :: POSIX :: Linux\n"
                "Classifier: Programming Language :: Python :: 3\n"
                "Description-Content-Type: text/markdown\n\n%s"
                % (DISTRIBUTION, env["VERSION"], SUMMARY, readme.read()))
    return archives.wheel(packed, DISTRIBUTION, env["VERSION"], archives.wheel_tags(env["arch"]),
                          text, env["SECONDS"])


def debian_arch(env):
    return {"x86_64": "amd64", "aarch64": "arm64"}[env["arch"]]


def maintainer():
    """The packager, by the variables that Debian's tools know."""
    return "%s <%s>" % (os.environ.get("DEBFULLNAME", "The probing maintainers"),
                        os.environ.get("DEBEMAIL", "maintainers@probing.invalid"))


def control(env, name, summary, text, **more):
    fields = {"Package": name, "Version": env["VERSION"] + "-1", "Section": "devel",
              "Priority": "optional", "Architecture": debian_arch(env),
              "Maintainer": maintainer()}
    fields.update(more)
    return dict(fields, Description=summary + "".join("\n " + line for line in text.split("\n")))


def debian_papers(env, name, files):
    """copyright, changelog and what lintian need not say, as Debian's policy has them."""
    when = subprocess.run(["date", "-u", "-R", "-d", "@%d" % env["SECONDS"]],
                          stdout=subprocess.PIPE, check=True).stdout.decode()
    log = ("%s (%s-1) unstable; urgency=medium\n\n  * CHANGELOG.md tells what changed.\n\n"
           " -- %s  %s" % (name, env["VERSION"], maintainer(), when))
    with open("LICENSE") as own:
        common = own.read()
    words = [f.data for f in files if f.name == "lib/probing/licenses.txt"][0].decode()
    words = words.replace(common, "Debian has the text in /usr/share/common-licenses/Apache-2.0\n")
    words = words.replace("exception).", "exception;\n/usr/share/common-licenses/GPL-3).", 1)
    doc = "usr/share/doc/%s/" % name
    quiet = "# It is not made for Debian's archive, where a bug would have asked for it.\n" \
            "%s: initial-upload-closes-no-bugs *\n" % name
    return [File(doc + "changelog.Debian.gz", archives.gzipped(log.encode()), 0o644),
            File(doc + "copyright", words.encode(), 0o644),
            File("usr/share/lintian/overrides/" + name, quiet.encode(), 0o644)]


def make_deb(files, env):
    packed = []
    for f in files:
        name = "usr/" + f.name
        if f.name.startswith("python/"):
            name = "usr/lib/python3/dist-packages/" + f.name[7:]
        if f.name.startswith("share/zsh/"):
            name = "usr/share/zsh/vendor-completions/_probing"
        if f.name.startswith("share/man/"):
            name, f = name + ".gz", f._replace(data=archives.gzipped(f.data))
        if f.name == "share/doc/probing/CHANGELOG.md":
            name, f = "usr/share/doc/probing/changelog.gz", f._replace(
                data=archives.gzipped(f.data))
        packed.append(f._replace(name=name))
    fields = control(env, "probing", SUMMARY[0].lower() + SUMMARY[1:], ABOUT,
                     Depends="libc6 (>= 2.17)", Recommends="libcurl4", Suggests="python3")
    return archives.deb(packed + debian_papers(env, "probing", files), fields, env["SECONDS"])


def make_debug_deb(files, env):
    packed = [f._replace(name="usr/lib/debug/" + f.name) for f in files if f.name.startswith(".")]
    fields = control(env, "probing-dbgsym", "debug symbols for probing",
                     "Found by the debugger by their build ids.",
                     Depends="probing (= %s-1)" % env["VERSION"], Section="debug")
    return archives.deb(packed + debian_papers(env, "probing-dbgsym", files), fields,
                        env["SECONDS"])


def make_rpm(files, env):
    packed = []
    for f in files:
        name = "usr/" + f.name
        if f.name.startswith("python/"):
            name = "usr/lib/probing/" + f.name
        if f.name.startswith("lib/pkgconfig/"):  # the one folder of all distributions
            name = "usr/share" + f.name[3:]
        if f.name.startswith("share/man/"):
            name, f = name + ".gz", f._replace(data=archives.gzipped(f.data))
        packed.append(f._replace(name=name))
    linked = {word for part in linked_in(env.Dir("$DEPS").abspath)
              for word in licenses.OF[part[0]][0].split(" AND ")}
    return rpm_package.rpm(packed, env["arch"], env["SECONDS"], name="probing", summary=SUMMARY,
                           version=env["VERSION"], text=ABOUT, packager=maintainer(),
                           license=" AND ".join(["Apache-2.0"] + sorted(linked)))


def make_tarball(files, env):
    top = "probing-%s-%s" % (env["VERSION"], env["arch"])
    return archives.tar_xz([f._replace(name=f.name.replace("python/", "lib/python3/site-packages/",
                                                           f.name.startswith("python/")))
                            for f in files], env["SECONDS"], top)


def make_debug_tarball(files, env):
    return archives.tar_xz([f for f in files if f.name.startswith(".")], env["SECONDS"],
                           "probing-%s-%s-debug" % (env["VERSION"], env["arch"]))


def package(env, name, make, files, debug=()):
    """$BUILD/packages/NAME of the table's files; debug: {place: its symbols} are put to them by the
    build id of what stands at that place."""
    places, symbols = sorted(files), sorted(debug)

    def action(target, source, env):
        have = read_files(source, places)
        ids = {f.name: archives.build_id(f.data) for f in have if f.name in debug}
        for place, node in zip(symbols, source[len(places):len(places) + len(symbols)]):
            with open(str(node), "rb") as data:
                have.append(File(".build-id/%s/%s.debug" % (ids[place][:2], ids[place][2:]),
                                 data.read(), 0o644))
        archives.write(str(target[0]), make(have, env))
    tools = [env.File("#scripts/tools/%s.py" % n)
             for n in ("archives", "packages", "licenses", "rpm_package")]
    made = env.Command("$BUILD/packages/" + name,
                       [files[p] for p in places] + [debug[p] for p in symbols],
                       Action(action, "pack $TARGET"))
    env.Depends(made, [tools, "#README.md", Value([places, env["SECONDS"]])])
    return made[0]


def make_sources(target, source, env):
    """All files that git knows, and in deps/ the pinned tarballs: it builds without a network."""
    fetched = env.Dir("$BUILD/sources").abspath
    subprocess.run(["/usr/bin/python3", "scripts/tools/deps.py", "--fetch", fetched], check=True)
    listed = subprocess.run(["git", "ls-files", "-z"], stdout=subprocess.PIPE, check=True)
    paths = {n: n for n in listed.stdout.decode().split("\0")[:-1] if os.path.isfile(n)}
    paths.update(("deps/" + n, os.path.join(fetched, n)) for n in os.listdir(fetched))
    files = []
    for name, path in paths.items():
        with open(path, "rb") as data:
            mode = 0o755 if os.access(path, os.X_OK) else 0o644
            files.append(File(name, data.read(), mode))
    archives.write(str(target[0]), archives.tar_xz(files, env["SECONDS"],
                                                   "probing-" + env["VERSION"]))


def package_aliases(env, files):
    """`scons wheel deb rpm tarball sdist`: into $BUILD/packages."""
    env["SECONDS"] = seconds_of_sources()
    sources = env.Command("$BUILD/packages/probing-%s-source.tar.xz" % env["VERSION"], [],
                          Action(make_sources, "pack $TARGET"))
    AlwaysBuild(Alias("sdist", sources))
    AlwaysBuild(sources)
    debug = {place: env.Command("$BUILD/debug/%s.debug" % os.path.basename(place), node,
                                Action("$OBJCOPY --only-keep-debug --compress-debug-sections "
                                       "$SOURCE $TARGET", "symbols $TARGET"))[0]
             for place, node in programs(env).items()}
    version, arch = env["VERSION"], env["arch"]
    known = "probing%s_" + "%s-1_%s.deb" % (version, debian_arch(env))
    top = "probing-%s-%s" % (version, arch)
    symbols = package(env, top + "-debug.tar.xz", make_debug_tarball, files, debug)
    rpm = "probing-%s-1.%s.rpm" % (version, arch)
    for name, made in (
            ("rpm", [package(env, rpm, make_rpm, files), symbols]),
            ("wheel", [package(env, archives.wheel_name(DISTRIBUTION, version, arch), make_wheel,
                               files), symbols]),
            ("deb", [package(env, known % "", make_deb, files),
                     package(env, known % "-dbgsym", make_debug_deb, files, debug)]),
            ("tarball", [package(env, top + ".tar.xz", make_tarball, files), symbols])):
        Alias(name, made)
