"""Route search: graph arrays, the dual flow solver, path search, and plans of contract instructions.

Everything here is free of I/O. Searching happens in float64 kernels compiled by Cython; what is promised
to a user is always computed again in exact integers by walking the instructions themselves.
"""
