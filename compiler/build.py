"""Compiles the kernels: a translated source, then an extension beside the modules that it was made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from Cython.Build import cythonize
from setuptools import Distribution, Extension

from compiler.join import join

PACKAGE, NAME = "millrace.routing", "_kernels"
# No contraction: the same results on every machine. No conversion of ifs: with conditional moves in the binary searches
# of curves quotes take 2 to 11 % longer. Nothing here reads errno or floating-point exceptions.
FLAGS = ["-O3", "-ffp-contract=off", "-fno-if-conversion", "-fno-math-errno", "-fno-trapping-math", "-g0"]


def build(root: Path) -> Path:
    """Compile the kernels of the project in `root`; the path of the extension."""
    folder, work = root / "src", root / "build" / "kernels"
    work.mkdir(parents=True, exist_ok=True)
    source = work / f"{NAME}.pyx"
    source.write_text(join(folder, PACKAGE))
    extension = Extension(
        f"{PACKAGE}.{NAME}",
        [str(source)],
        include_dirs=[np.get_include()],
        extra_compile_args=FLAGS,
        define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"), ("CYTHON_WITHOUT_ASSERTIONS", "1")],
    )
    compiled = cythonize([extension], force=True, quiet=True)
    distribution = Distribution({"name": "millrace", "ext_modules": compiled, "package_dir": {"": str(folder)}})
    command = distribution.get_command_obj("build_ext")
    command.inplace, command.build_temp = True, str(work)
    command.ensure_finalized()
    command.run()
    return Path(command.get_ext_fullpath(f"{PACKAGE}.{NAME}"))
