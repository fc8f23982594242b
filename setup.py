"""Metadata is in pyproject.toml; this adds the C module."""

from setuptools import setup

setup(cffi_modules=["native/build_ffi.py:ffibuilder"])
