"""The committed corpus: every input of it is survived under sanitizers, and it covers the reader and the verifier."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fuzz import corpus
from tests.native.build import NATIVE, make

HERE = Path(__file__).parent
pytestmark = pytest.mark.slow


def test_the_corpus_is_small() -> None:
    assert len(corpus.packed()) > 100
    assert corpus.PACKED.stat().st_size <= 1 << 20


def test_inputs_under_sanitizers() -> None:
    make("-C", str(HERE), "mutants")
    inputs = corpus.packed()
    done = subprocess.run([NATIVE / "build-address-undefined-test" / "mutants"], input=corpus.stream(inputs), capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    files, structure, code, calls, returned = map(int, done.stdout.split())
    assert files == len(inputs)
    assert min(structure, code, calls, returned) > 0


@pytest.mark.skipif(shutil.which("gcov") is None, reason="needs gcov")
def test_lines_of_reader_and_verifier() -> None:
    make("-C", str(HERE), "coverage")
    share = {
        name: run / total for name, run, total in corpus.covered_lines(NATIVE / "build-coverage")
    }
    print({name: round(value, 4) for name, value in share.items()})
    assert share["program"] >= 0.95
    assert share["verify"] >= 0.95
