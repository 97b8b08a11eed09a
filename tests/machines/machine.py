# SPDX-License-Identifier: Apache-2.0
"""A whole other machine to try things on: Debian's kernel and Python of some release and processor,
booted in QEMU's software emulation, with what was built here in it.

The packages come from this machine's own Debian source into build/machines/, by an apt with lists
of its own: nothing is installed.  Root is an initramfs, so no disk, driver or network is needed:
one archive of the packages, made once, and one of our files (the kernel unpacks both, in order).
What the guest prints on its serial line comes back; guest.py is what it runs.
"""
import os
import re
import shutil
import stat
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / "build" / "machines"
sys.path.insert(0, str(ROOT / "scripts" / "tools"))
import deps  # noqa: E402

PATH = "/usr/bin:/bin:/usr/sbin:/sbin"
BOOT_LIMIT_S = 1200  # emulation on a busy machine; the guest has limits of its own
MERGED = ("bin", "sbin", "lib", "lib64")  # one tree below /usr, whatever the packages still say
INIT = """#!/bin/busybox sh
export PATH=/usr/bin:/usr/sbin:/bin:/sbin
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox mount -t devtmpfs dev /dev
busybox mkdir -p /dev/shm /tmp /run /var/tmp
busybox mount -t tmpfs shm /dev/shm
busybox mount -t tmpfs tmp /tmp
busybox ip link set lo up
busybox dmesg -n 1
/usr/bin/python3 -u /probing/guest.py </dev/null 2>&1
busybox poweroff -f
"""


class Missing(Exception):
    """The machine cannot be had here; the text says why."""


def run(command, **kwargs):
    env = dict(os.environ, PATH=PATH, LC_ALL="C")
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, env=env, text=True, **kwargs)
    if done.returncode:
        raise Missing("'%s' failed: %s" % (" ".join(command)[:100], done.stdout[-300:]))
    return done.stdout


class Machine:
    """One kernel and one root.  arch: as uname says; suite: Debian's; packages: beside python3."""

    def __init__(self, suite, arch, packages=(), cpu="max"):
        self.suite, self.arch, self.cpu = suite, arch, cpu
        self.debian = {"x86_64": "amd64", "aarch64": "arm64"}[arch]
        self.packages = ["python3", "busybox", *packages]
        self.folder = CACHE / ("%s-%s" % (suite, self.debian))

    # ---- what it is made of

    def options(self):
        """Options that make apt work for the other machine, in a folder of ours."""
        for part in ("lists/partial", "cache/archives/partial"):
            (self.folder / part).mkdir(parents=True, exist_ok=True)
        (self.folder / "status").touch()
        own = [s for s in deps.apt_stanzas() if s[1] == deps.codename()]
        if not own or not shutil.which("apt-get", path=PATH):
            raise Missing("no Debian package source on this machine")
        uri, _, _, signed = own[0]
        key = " signed-by=" + signed if signed else ""
        (self.folder / "sources.list").write_text(
            "deb [arch=%s%s] %s %s main\n" % (self.debian, key, uri, self.suite))
        given = {"APT::Architecture": self.debian, "APT::Architectures::": self.debian,
                 "Dir::Etc::sourcelist": self.folder / "sources.list",
                 "Dir::Etc::sourceparts": "/dev/null", "Dir::State::lists": self.folder / "lists",
                 "Dir::State::status": self.folder / "status", "Dir::Cache": self.folder / "cache",
                 "APT::Sandbox::User": "root", "APT::Install-Recommends": "false",
                 "Acquire::Languages": "none", "Acquire::Retries": "2"}
        return ["-q"] + [word for k, v in given.items() for word in ("-o", "%s=%s" % (k, v))]

    def fetch(self):
        """All packages as files, kernel included."""
        options = self.options()
        run(["apt-get", *options, "update"], timeout=300)
        text = run(["apt-cache", *options, "depends", "linux-image-" + self.debian], timeout=60)
        kernel = re.search(r"Depends: (linux-image-\S+)", text)
        if not kernel:
            raise Missing("no kernel in Debian %s for %s" % (self.suite, self.debian))
        archives = self.folder / "cache" / "archives"
        run(["apt-get", *options, "install", "-y", "--download-only", *self.packages], timeout=600)
        text = run(["apt-cache", *options, "depends", kernel[1]], timeout=60)
        parts = re.findall(r"Depends: (linux-binary-\S+)", text)  # of its own since 2026
        run(["apt-get", *options, "download", *(parts or [kernel[1]])], timeout=600, cwd=archives)
        return sorted(archives.glob("*.deb"))

    def unpack(self, packages):
        """The root folder, and the kernel beside it."""
        tree = self.folder / "root"
        shutil.rmtree(tree, ignore_errors=True)
        for name in MERGED:
            (tree / "usr" / name).mkdir(parents=True)
            (tree / name).symlink_to("usr/" + name)
        for package in packages:
            if package.name.startswith(("linux-image-", "linux-binary-")):
                run(["dpkg-deb", "-x", str(package), str(self.folder / "kernel")], timeout=300)
            else:
                run(["dpkg-deb", "-x", str(package), str(tree)], timeout=300)
        for name in ("proc", "sys", "dev", "tmp", "run", "root"):
            (tree / name).mkdir(exist_ok=True)
        for name in ("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/i18n"):
            shutil.rmtree(tree / name, ignore_errors=True)
        (tree / "etc" / "passwd").write_text("root:x:0:0::/root:/bin/sh\n"
                                             "ann:x:1000:1000::/tmp:/bin/sh\n")
        if not (tree / "bin" / "sh").exists():
            (tree / "bin" / "sh").symlink_to("busybox")
        (tree / "init").write_text(INIT)
        (tree / "init").chmod(0o755)
        return tree

    def make(self):
        """(kernel, archive of the root), made once."""
        ready = self.folder / "root.cpio"
        if not ready.exists():
            for tool in ("qemu-system-" + self.arch, "dpkg-deb"):
                if not shutil.which(tool, path=PATH):
                    raise Missing("no %s (Debian: qemu-system-%s)" %
                                  (tool, "arm" if self.arch == "aarch64" else "x86"))
            try:
                tree = self.unpack(self.fetch())
            except (OSError, subprocess.SubprocessError) as why:
                raise Missing(str(why))
            with open(self.folder / "new.cpio", "wb") as out:
                Archive(out).tree(tree)
            (self.folder / "new.cpio").rename(ready)
            shutil.rmtree(tree)
            shutil.rmtree(self.folder / "cache")
        kernel = sorted((self.folder / "kernel").glob("**/vmlinuz*"))
        if not kernel:
            raise Missing("Debian %s keeps its kernel elsewhere now" % self.suite)
        return kernel[0], ready

    # ---- boot it

    def command(self, kernel, initrd):
        # Never KVM: where this machine is a virtual one itself, it may be there and not work.
        board = {"x86_64": ["-machine", "q35"],
                 "aarch64": ["-machine", "virt"]}[self.arch]
        console = {"x86_64": "ttyS0", "aarch64": "ttyAMA0"}[self.arch]
        return ["qemu-system-" + self.arch, *board, "-cpu", self.cpu,
                "-accel", "tcg,thread=multi", "-smp", "2", "-m", "1536",
                "-kernel", str(kernel), "-initrd", str(initrd), "-nographic", "-no-reboot",
                "-nic", "none", "-append", "console=%s panic=-1 quiet" % console]

    def boot(self, files, log):
        """Run guest.py with `files` ({path in the guest: path here}); gives the serial text."""
        kernel, root = self.make()
        initrd = Path(log).with_suffix(".cpio")
        with open(initrd, "wb") as out:
            shutil.copyfileobj(open(root, "rb"), out)
            archive = Archive(out)
            for name, source in sorted(files.items()):
                archive.add(name, source)
            archive.end()
        with open(log, "wb") as out:
            try:
                subprocess.run(self.command(kernel, initrd), stdin=subprocess.DEVNULL, stdout=out,
                               stderr=subprocess.STDOUT, timeout=BOOT_LIMIT_S,
                               env=dict(os.environ, PATH=PATH))
            except subprocess.TimeoutExpired:
                pass
        initrd.unlink()
        return Path(log).read_text(errors="replace")


class Archive:
    """cpio's newc form, which the kernel reads: for each file thirteen hexadecimal words, its name
    and its bytes, each padded to four."""

    def __init__(self, out):
        self.out, self.count, self.folders = out, 0, set()

    def pad(self):
        self.out.write(b"\0" * (-self.out.tell() % 4))

    def entry(self, name, mode, data=b""):
        self.count += 1
        name = name.encode() + b"\0"
        words = (self.count, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0)
        self.pad()
        self.out.write(b"070701" + b"".join(b"%08x" % w for w in words) + name)
        self.pad()
        self.out.write(data)

    def add(self, name, source):
        """One file or link, and the folders above it."""
        for above in reversed(Path(name).parents):
            if str(above) != "." and str(above) not in self.folders:
                self.folders.add(str(above))
                self.entry(str(above), 0o40755)
        mode = os.lstat(source).st_mode
        if stat.S_ISLNK(mode):
            self.entry(name, mode, os.readlink(source).encode())
        elif stat.S_ISREG(mode):
            self.entry(name, mode, Path(source).read_bytes())

    def end(self):
        self.entry("TRAILER!!!", 0)
        self.pad()

    def tree(self, top):
        for folder, names, files in os.walk(top):
            for name in sorted(names + files):
                path = os.path.join(folder, name)
                inside = os.path.relpath(path, top)
                if stat.S_ISDIR(os.lstat(path).st_mode):
                    if inside not in self.folders:
                        self.folders.add(inside)
                        self.entry(inside, 0o40000 | os.lstat(path).st_mode & 0o1777)
                else:
                    self.add(inside, path)
        self.end()
