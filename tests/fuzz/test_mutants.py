"""Mutants are refused with InvalidExecutable, or run within limits; under ASan and UBSan, without machine code."""

from __future__ import annotations

import copy
import random
import struct
import subprocess
from pathlib import Path

import pytest

from nimblevm.bytecode.executable import load
from nimblevm.bytecode.serialize import ALIGNMENT, CONSTANTS, DEVICE_CODE, FIXED_HEADER_SIZE
from nimblevm.errors import InvalidExecutable
from tests.bytecode.forge import join, split
from tests.fuzz import corpus
from tests.fuzz.mutate import mutants
from tests.native.build import NATIVE, make

HERE = Path(__file__).parent
RUNNER = NATIVE / "build-address-undefined-test" / "mutants"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def files() -> dict[str, bytes]:
    return {**corpus.compiled(), "control": corpus.assembled()["control"]}


@pytest.fixture(scope="module")
def runner() -> Path:
    make("-C", str(HERE), "mutants")
    return RUNNER


def test_10_000_mutants_of_four_files(runner: Path, files: dict[str, bytes]) -> None:
    """The runner aborts on anything but a load error of the allowed kinds; a sanitizer report aborts it too."""
    per_file = 10_000 // len(files) + 1
    total = past = 0
    for number, (name, data) in enumerate(files.items()):
        process = subprocess.Popen(
            [str(runner)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        stream = b"".join(
            struct.pack("<Q", len(m)) + m for m in mutants(data, per_file, seed=number)
        )
        out, err = process.communicate(stream, timeout=600)
        assert process.returncode == 0, f"{name}, seed {number}: {err.decode()[-4000:]}"
        count, structure, code, calls, returned = map(int, out.split())
        print(
            f"{name}: {count} mutants, {structure} past structure, {code} past code, {calls} calls, {returned} returned"
        )
        assert count == per_file
        assert returned > 0
        total += count
        past += structure
    assert total >= 10_000
    assert past >= 0.6 * total


def test_mutants_of_code_for_devices(runner: Path) -> None:
    """Bytes of sections of kinds 4 and 5 changed, or the end cut off: refused when the file is opened, or fine."""
    data, rng = corpus.with_device_code(), random.Random(2)
    header, sections = split(data)
    places = [i for i, row in enumerate(header["sections"]) if row[0] >= DEVICE_CODE]
    assert len(places) == 4
    inputs = []
    for number in range(1200):
        changed = list(sections)
        index = places[number % 4]
        section = bytearray(changed[index])
        for _ in range(rng.choice((1, 1, 2, 8))):
            # What is not text stands at the beginning and behind it.
            at = rng.choice((rng.randrange(len(section)), rng.randrange(min(40, len(section)))))
            section[at] = rng.choice((section[at] ^ 1 << rng.randrange(8), rng.randrange(256)))
        changed[index] = bytes(section[: len(section) - (rng.random() < 0.1) * rng.randrange(60)])
        inputs.append(join(copy.deepcopy(header), changed))
    stream = corpus.stream(inputs)
    done = subprocess.run([str(runner)], input=stream, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()[-4000:]
    count, _, code, _, _ = map(int, done.stdout.split())
    assert count == len(inputs)
    assert 0 < code < count


def test_flips_without_repaired_digests_are_refused(files: dict[str, bytes]) -> None:
    generator = random.Random(11)
    for data in files.values():
        header, _ = split(data)
        end = FIXED_HEADER_SIZE + struct.unpack_from("<Q", data, 16)[0]
        start = end + -end % ALIGNMENT + header["sections"][CONSTANTS][1]
        inside = range(start, start + header["sections"][CONSTANTS][2])
        for _ in range(3000):
            at = generator.randrange(len(data))
            if at in inside:
                continue
            flipped = bytearray(data)
            flipped[at] ^= 1 << generator.randrange(8)
            with pytest.raises(InvalidExecutable):
                load(bytes(flipped), native=False)
