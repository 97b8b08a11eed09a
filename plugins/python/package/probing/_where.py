# SPDX-License-Identifier: Apache-2.0
"""Where the files of this installation are: libprobing.so, and the command `probing`.

A file is believed when it says that it is of this package's build; nothing is loaded to know that.
docs/installation.md has the places.
"""
import os
import struct
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_MARK = b"@(#)probing "  # as in core/base/version.h; what(1) finds it, too
_AT_SECURE = 23  # of getauxval(3)
_MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64"}  # e_machine of elf(5)


class ProbingError(RuntimeError):
    """Why probing could not start."""


def version():
    """The version of a copy that was installed beside it, or of the sources in their file."""
    try:
        from ._version import version as said
        return said
    except ImportError:
        with open(_up(4, "VERSION")) as text:
            return text.read().strip()


def _build():
    """The build that the files must have: all of it, or in the sources' tree the version only."""
    try:
        from ._version import build
        return build
    except ImportError:
        return version() + " ("


def _up(n, *names):
    return os.path.normpath(os.path.join(_HERE, *([".."] * n + list(names))))


def build_of(path):
    """ "0.1.0 (build 3f2a91c04d5e)" as a file of ours says, "" when it says nothing."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        return ""
    at = data.find(_MARK)
    return data[at + len(_MARK):at + 99].split(b"\0", 1)[0].decode("ascii", "replace") \
        if at >= 0 else ""


def _homes():
    """Folders that may have libprobing.so: with pip inside of the package; else lib/probing beside
    the lib/python3* that we are in; a build; and where a prefix was given to nobody."""
    return [os.path.join(_HERE, "_native"), _up(3, "probing"), _up(4, "build", "release"),
            os.path.join(sys.prefix, "lib", "probing"),
            os.path.join(sys.base_prefix, "lib", "probing"),
            "/usr/local/lib/probing", "/usr/lib/probing"]


def _commands():
    import shutil
    import sysconfig
    found = [_up(1, "bin", "probing"), _up(4, "bin", "probing"),
             _up(4, "build", "release", "probing"),
             os.path.join(sysconfig.get_path("scripts"), "probing")]
    return found + [shutil.which("probing") or ""]


def _first(places, what):
    """The first that is of our build; ProbingError says what else there is."""
    others = []
    for place in places:
        if os.path.isfile(place):
            build = build_of(place)
            if build.startswith(_build()):
                return os.path.realpath(place)
            others.append("%s %s" % (place, "is " + build if build else "is none of ours"))
    if others:
        raise ProbingError("this package is probing %s, but %s: install them from one package"
                           % (_build().rstrip(" ("), ", ".join(dict.fromkeys(others))))
    raise ProbingError("%s is not in %s: install libprobing again" % (what, ", ".join(
        dict.fromkeys(os.path.dirname(p) for p in places if p))))


def _machine(path):
    """The processor that an ELF file is for; "" for another kind of file."""
    try:
        with open(path, "rb") as file:
            head = file.read(20)
    except OSError:
        return ""
    number = int.from_bytes(head[18:20], "little")
    return _MACHINES.get(number, "machine %d" % number) if head[:4] == b"\x7fELF" else ""


def refuse_machine(path):
    """ProbingError when this process can never load a library, or run the command: the reason."""
    name, here = _machine(path), _machine("/proc/self/exe") or os.uname().machine
    if name and name != here:
        raise ProbingError("%s is built for %s, this Python is %s: install the package for %s"
                           % (path, name, here, here))
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        libc = ""
    if not libc.startswith("glibc"):
        raise ProbingError("this Python does not run on glibc (musl, as in Alpine?); probing needs "
                           "glibc 2.17 or newer")
    if tuple(int(n) for n in libc.split()[1].split(".")[:2]) < (2, 17):
        raise ProbingError("this machine has %s; probing needs 2.17 or newer" % libc)


def believes_environment():
    """As identity_believes_environment() of sdk/lib/proc/identity.h; False, too, where AT_SECURE is
    not to be seen: the kernel closes /proc/self of such a program."""
    try:
        with open("/proc/self/auxv", "rb") as auxv:
            pairs = dict(struct.iter_unpack("NN", auxv.read()))
    except OSError:
        return False
    return pairs.get(_AT_SECURE) == 0 and len(set(os.getresuid())) == len(set(os.getresgid())) == 1


def library():
    """Path of libprobing.so: PROBING_LIBRARY, or that of this installation; ProbingError when there
    is none that can be loaded here."""
    named = os.environ.get("PROBING_LIBRARY") if believes_environment() else None
    if named and not os.path.isfile(named):
        raise ProbingError("PROBING_LIBRARY is %s, and there is no file" % named)
    try:
        path = os.path.realpath(named) if named else \
            _first([os.path.join(h, "libprobing.so") for h in _homes()], "libprobing.so")
    except ProbingError as error:
        raise ProbingError("%s; or set PROBING_LIBRARY" % error)
    refuse_machine(path)
    return path


def command():
    """Path of the command `probing`; ProbingError when there is none of this build."""
    return _first(_commands(), "the command probing")


def _is_foreign(module):
    """Is a folder `probing` a package, and not this project's, of whatever version?"""
    try:
        with open(os.path.join(module, "__init__.py"), "rb") as source:
            return b"\nfrom . import _where" not in source.read()
    except OSError:
        return False


def _is_foreign_command(path):
    """A program that is none of ours, or pip's script for a module `probing`; who has written a
    script around the command knows what it does."""
    try:
        with open(path, "rb") as file:
            head = file.read(4096)
    except OSError:
        return False
    if head[:4] == b"\x7fELF":
        return not build_of(path)
    return b"\nfrom probing" in head or b"\nimport probing" in head


def foreign(commands=False):
    """What there is of another project that is called `probing`: one line, or "".  commands: look
    at the command that a shell finds, too.  Nothing of it is run."""
    import glob
    folder = os.path.dirname(_HERE)
    found = [path for kind in ("dist", "egg")
             for path in glob.glob("%s/probing-*.%s-info" % (glob.escape(folder), kind))]
    modules = [os.path.join(p or ".", "probing") for p in sys.path if isinstance(p, str)]
    found += [module for module in modules if _is_foreign(module)]
    if commands:
        import shutil
        path = shutil.which("probing") or ""
        found += [path] * _is_foreign_command(path)
    if not found:
        return ""
    return ("%s %s of another project, which has the same names: keep one of the two (pip "
            "uninstall probing, then install libprobing again)"
            % (", ".join(dict.fromkeys(found)), "is" if len(found) == 1 else "are"))


def is_loaded():
    """Is libprobing.so in this process?  By `launch` it is before Python is, and its plugin comes
    later."""
    try:
        with open("/proc/self/maps", errors="replace") as maps:
            return any("/libprobing.so" in line for line in maps)
    except OSError:
        return False
