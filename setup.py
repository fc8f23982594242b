"""Metadata is in pyproject.toml; this adds the C module, which any Python from 3.11 on can load."""

from setuptools import setup

setup(
    cffi_modules=["native/build_ffi.py:ffibuilder"],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
