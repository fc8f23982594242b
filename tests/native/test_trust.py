"""Saved models while allocations fail, under faults and in threads (fail_models.c, soak.c, bind_threads.c)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.native import models
from tests.native.build import run_target

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> str:
    return " ".join(map(str, models.save(tmp_path_factory.mktemp("models"))))


def test_every_allocation_fails_once(tmp_path: Path) -> None:
    """The n-th for n up to 2,000, and the first of each place that allocates, maps, opens, loads a library or makes a
    thread; ASan and LSan look on."""
    files = " ".join(map(str, models.save_for_failures(tmp_path)))
    out = run_target("fail", f"FILES={files}", NVM_TEST="1", NVM_SANITIZE="address,undefined")
    print(out)
    found = re.search(r"(\d+) sites, (\d+) not reached; (\d+) runs, (\d+) refused", out)
    assert found is not None
    sites, missed, runs, refused = map(int, found.groups())
    assert sites > 90
    # Cells that this build takes from malloc (2); large pages; a copy between two devices that are no hosts; devices
    # with code of their own (2); a file none of whose machine code fits; the last of the ways to map it (all of them fail
    # together); weights that are copied. Device backends are for their own tests.
    ours = re.compile("not reached: (?!devices/(?!native_code|vm_devices))")
    core = [line for line in out.splitlines() if ours.search(line)]
    assert missed >= len(core)
    assert len(core) <= 9, out
    assert runs > 10_000
    assert refused > 5_000


def test_soak(files: str) -> None:
    """Twenty seconds; `make soak` takes ten minutes."""
    print(run_target("soak", f"FILES={files}", "SECONDS=20", NVM_TEST="1"))


def test_threads_bind_one_set_of_weights(tmp_path: Path) -> None:
    """Under TSan: the set is looked up, copied from and kept alive by several threads at once."""
    models.save_for_failures(tmp_path)
    run_target(
        "bind", f"FILES={tmp_path}/late.nvm {tmp_path}/late.safetensors", NVM_SANITIZE="thread"
    )
