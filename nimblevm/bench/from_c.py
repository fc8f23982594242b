"""What a call costs without Python: native/bench/call.c runs saved programs of a row."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

import nimblevm as nvm
from nimblevm.bench.limits import LimitsUnavailable, build
from nimblevm.bench.rows import Row


def calls_from_c(row: Row, core: int) -> tuple[tuple[float, ...], ...]:
    """Rounds of seconds a call for each case of a row whose programs take one row of `size` floats; weights are bound.

    Raises LimitsUnavailable where the program can't be built or run.
    """
    program = build("call")
    weights = row.params()
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for case in row.cases():
            mod = nvm.relay.parse(row.programs()[case.program])
            declared = {p.name_hint for p in mod.function("main").params}
            taken = {name: array for name, array in weights.items() if name in declared}
            files.append(str(Path(folder) / f"{case.program}.nvm"))
            with nvm.compile(mod, params=taken) as exe:
                exe.save(files[-1])
        command = [str(program), str(core), str(row.sizes["size"]), *files]
        try:
            done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
        except (OSError, subprocess.SubprocessError) as error:
            told = getattr(error, "stderr", None) or str(error)
            raise LimitsUnavailable(f"{program.name}: {told.strip()}") from None
    return tuple(tuple(ns * 1e-9 for ns in taken) for taken in json.loads(done.stdout))


__all__ = ["calls_from_c"]
