# SPDX-License-Identifier: Apache-2.0
"""Packaging of `import probing` and of the hook that starts it with the interpreter.

PROBING_BUILD=build/release pip install plugins/python/package     takes what was built along:
libprobing.so beside probing/__init__.py, the plugins in probing/plugins.  Without it only Python
files are installed, and libprobing.so is looked for where __init__.py says.
"""
import glob
import os
import re
import shutil

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = os.path.dirname(os.path.abspath(__file__))


def version_of_the_sources():
    """Said once, in core/base/version.h; pip before 21.3 builds a copy that lies elsewhere."""
    with open(os.path.join(HERE, "..", "..", "..", "core", "base", "version.h")) as header:
        return re.search(r'define PROBING_VERSION "(.*)"', header.read()).group(1)


class Build(build_py):
    """The .pth file belongs beside the packages, where site looks for it."""

    def run(self):
        build_py.run(self)
        shutil.copy(os.path.join(HERE, "probing.pth"), self.build_lib)
        with open(os.path.join(self.build_lib, "probing", "_version.py"), "w") as own:
            own.write('version = "%s"\n' % VERSION)
        built = os.environ.get("PROBING_BUILD")
        if not built:
            return
        plugins = os.path.join(self.build_lib, "probing", "plugins")
        os.makedirs(plugins, exist_ok=True)
        shutil.copy(os.path.join(built, "libprobing.so"), os.path.dirname(plugins))
        for path in glob.glob(os.path.join(built, "plugins", "*.so")):
            shutil.copy(path, plugins)


VERSION = version_of_the_sources()
setup(name="probing", version=VERSION, license="Apache-2.0", python_requires=">=3.8",
      description="Look into a running training process: stacks, SQL over measurements, eval",
      packages=["probing"], package_data={"probing": ["py.typed", "*.pyi"]},
      py_modules=["probing_hook"], cmdclass={"build_py": Build}, zip_safe=False)
