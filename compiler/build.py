"""Compiles the kernels: a translated source, then an extension beside the modules that it was made of."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from Cython.Build import cythonize
from setuptools import Distribution, Extension

from compiler.join import join

PACKAGE, NAME = "millrace.routing", "_kernels"
# No contraction: the same results on every machine. No conversion of ifs: with conditional moves in the binary searches
# of curves quotes take 2 to 11 % longer. Nothing here reads errno or floating-point exceptions.
FLAGS = ["-O3", "-ffp-contract=off", "-fno-if-conversion", "-fno-math-errno", "-fno-trapping-math", "-g0"]


def build(root: Path, *, checked: bool = False) -> Path:
    """Compile the kernels of the project in `root`; the path of the extension.

    `checked` ones look at every index: to find what reads outside of an array, by tests and slow searches.
    """
    (root / "build").mkdir(exist_ok=True)
    with TemporaryDirectory(prefix="kernels-", dir=root / "build") as work:  # one for each of several builds at once
        return _build_in(Path(work), root / "src", checked)


def _build_in(work: Path, folder: Path, checked: bool) -> Path:
    source = work / f"{NAME}.pyx"
    source.write_text(join(folder, PACKAGE, checked=checked))
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
    command.build_lib, command.build_temp = str(work), str(work)
    command.ensure_finalized()
    command.run()
    made = Path(command.get_ext_fullpath(f"{PACKAGE}.{NAME}"))
    place = folder / made.relative_to(work)
    return made.replace(place)  # at once: who starts meanwhile, or runs with the earlier ones, does not see half of it
