# SPDX-License-Identifier: Apache-2.0
"""An RPM of a list of files, by rpmbuild: the same byte for byte each time.

Which Python there is, and where it imports from, differs between distributions, so one package for
all puts the Python package into a folder of ours: docs/installation.md says how to use it.
"""
import os
import shutil
import subprocess
import tempfile

import archives

# rpm's own hooks would strip, compile and link what we have made as it shall be.
SPEC = """%global debug_package %{{nil}}
%global __os_install_post %{{nil}}
%global _build_id_links none
%global _binary_payload w6.xzdio
%global source_date_epoch_from_changelog 0
%global use_source_date_epoch_as_buildtime 1
%global clamp_mtime_to_source_date_epoch 1
%global _buildhost reproducible
Name: {name}
Version: {version}
Release: 1
Summary: {summary}
License: {license}
Packager: {packager}
AutoReqProv: no
Requires: glibc >= 2.17
Provides: {name} = %{{version}}-%{{release}}

%description
{text}

%install
cp -a {stage}/. %{{buildroot}}/

%files
%defattr(-,root,root,-)
{listed}
"""


def rpm(files, arch, seconds, **fields):
    """The package's bytes.  files: names without a slash before; fields: name, version, summary,
    license, packager, text."""
    if not shutil.which("rpmbuild"):
        raise OSError("no rpmbuild here (Debian: rpm; Fedora: rpm-build)")
    with tempfile.TemporaryDirectory() as top:
        stage = os.path.join(top, "stage")
        for f in files:
            path = os.path.join(stage, f.name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as out:
                out.write(f.data)
            os.chmod(path, f.mode)
        for folder, _, _ in os.walk(stage):
            os.chmod(folder, 0o755)
        own = [n for n in sorted(archives.folders([f.name for f in files])) if "/probing" in n]
        listed = ["%dir /" + name for name in own] + ["/" + f.name for f in sorted(files)]
        spec = os.path.join(top, "package.spec")
        with open(spec, "w") as out:
            out.write(SPEC.format(stage=stage, listed="\n".join(listed), **fields))
        done = subprocess.run(
            ["rpmbuild", "-bb", "--quiet", "--target", arch + "-linux", "--define",
             "_topdir " + os.path.join(top, "rpm"), "--define", "_rpmdir " + top, spec],
            env=dict(os.environ, SOURCE_DATE_EPOCH=str(seconds), LC_ALL="C.UTF-8", HOME=top),
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        found = [os.path.join(top, arch, n) for n in os.listdir(os.path.join(top, arch))] \
            if os.path.isdir(os.path.join(top, arch)) else []
        if done.returncode or len(found) != 1:
            raise OSError("rpmbuild made no package:\n" + done.stdout.decode(errors="replace"))
        with open(found[0], "rb") as made:
            return made.read()
