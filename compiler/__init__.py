"""Translates the kernels, which are plain Python, into one Cython module, and compiles it."""
