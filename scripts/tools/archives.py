# SPDX-License-Identifier: Apache-2.0
"""Wheels, Debian packages and tar files from a list of files, the same byte for byte each time.

A file is (name, bytes, mode); times are one number for all, names are sorted, owners are root.  The
standard library only, so a package can be made where no tool of its kind is.
"""
import base64
import collections
import gzip
import hashlib
import io
import lzma
import os
import tarfile
import time
import zipfile

File = collections.namedtuple("File", "name data mode")


def folders(names):
    found = set()
    for name in names:
        while "/" in name:
            name = name.rpartition("/")[0]
            found.add(name)
    return found


def tar_xz(files, seconds, top="."):
    """A .tar.xz as bytes; each name below `top`, with its folders."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        have = {f.name: f for f in files}
        for name in [""] + sorted(set(have) | folders(have)):
            entry = tarfile.TarInfo(top + "/" + name if name else top)
            entry.mtime = seconds
            entry.uname = entry.gname = "root"
            if name in have:
                entry.size, entry.mode = len(have[name].data), have[name].mode
                tar.addfile(entry, io.BytesIO(have[name].data))
            else:
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
    return lzma.compress(out.getvalue(), preset=6)


def gzipped(data):
    """As `gzip -9n` does."""
    return gzip.compress(data, 9, mtime=0)


def zip_bytes(files, seconds):
    out = io.BytesIO()
    when = time.gmtime(max(seconds, 315532800))[:6]  # a zip's time begins in 1980
    with zipfile.ZipFile(out, "w") as made:
        for f in files:
            entry = zipfile.ZipInfo(f.name, when)
            entry.create_system, entry.external_attr = 3, (0o100000 | f.mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            made.writestr(entry, f.data, compresslevel=9)
    return out.getvalue()


# ---- wheels (PEP 427, 600, 770) ----

def wheel(files, name, version, tags, metadata, seconds):
    """The wheel's bytes.  files: names as in the archive; metadata: the text of METADATA."""
    info = "%s-%s.dist-info/" % (name, version)
    files = sorted(files)
    text = "Wheel-Version: 1.0\nGenerator: probing\nRoot-Is-Purelib: false\n"
    text += "".join("Tag: %s\n" % tag for tag in tags)
    own = [File(info + "METADATA", metadata.encode(), 0o644),
           File(info + "WHEEL", text.encode(), 0o644)]
    record = []
    for f in files + own:
        digest = base64.urlsafe_b64encode(hashlib.sha256(f.data).digest()).rstrip(b"=").decode()
        record.append("%s,sha256=%s,%d\n" % (f.name, digest, len(f.data)))
    record.append(info + "RECORD,,\n")
    return zip_bytes(files + own + [File(info + "RECORD", "".join(record).encode(), 0o644)],
                     seconds)


def wheel_tags(arch):
    """For pip of before and after PEP 600; our libraries ask for glibc 2.17, as both say."""
    return ["py3-none-manylinux2014_" + arch, "py3-none-manylinux_2_17_" + arch]


def wheel_name(name, version, arch):
    """Both platforms in one name, as PEP 425 compresses them."""
    platforms = [tag.rpartition("-")[2] for tag in wheel_tags(arch)]
    return "%s-%s-py3-none-%s.whl" % (name, version, ".".join(platforms))


# ---- Debian packages (deb(5)) ----

def ar(members, seconds):
    out = b"!<arch>\n"
    for name, data in members:
        out += b"%-16s%-12d%-6d%-6d%-8s%-10d`\n" % (name.encode(), seconds, 0, 0, b"100644",
                                                   len(data))
        out += data + b"\n" * (len(data) % 2)
    return out


def deb(files, control, seconds):
    """The package's bytes.  files: names without a slash before; control: its fields, in order."""
    folders_of = folders([f.name for f in files])
    # As dpkg counts: each file in whole KiB, each folder one.
    size = sum((len(f.data) + 1023) // 1024 for f in files) + len(folders_of)
    control = dict(control, **{"Installed-Size": str(size)})
    order = [k for k in control if k != "Description"] + ["Description"]
    text = "".join("%s: %s\n" % (k, control[k]) for k in order)
    sums = "".join("%s  %s\n" % (hashlib.md5(f.data).hexdigest(), f.name) for f in sorted(files))
    head = [File("control", text.encode(), 0o644), File("md5sums", sums.encode(), 0o644)]
    return ar([("debian-binary", b"2.0\n"), ("control.tar.xz", tar_xz(head, seconds)),
               ("data.tar.xz", tar_xz(files, seconds))], seconds)


def build_id(data):
    """The build id of a 64-bit ELF file, as hexadecimal text; "" if it has none."""
    def number(at, size):
        return int.from_bytes(data[at:at + size], "little")
    table, entry, count = number(32, 8), number(54, 2), number(56, 2)
    for at in range(table, table + entry * count, entry):
        if number(at, 4) != 4:  # PT_NOTE
            continue
        note, end = number(at + 8, 8), number(at + 8, 8) + number(at + 32, 8)
        while note + 12 <= end:
            names, size, kind = number(note, 4), number(note + 4, 4), number(note + 8, 4)
            begin = note + 12 + (names + 3) // 4 * 4
            if kind == 3 and data[note + 12:note + 16] == b"GNU\0":
                return data[begin:begin + size].hex()
            note = begin + (size + 3) // 4 * 4
    return ""


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as out:
        out.write(data)
