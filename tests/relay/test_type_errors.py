"""Wrong programs and the messages they get: tests/golden/type_errors/*.rly, message in the trailing comment."""

from __future__ import annotations

from pathlib import Path

import pytest

import nimblevm.relay.op  # noqa: F401  (fills the registry)
from nimblevm.errors import RelayTypeError
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.parser import parse_module
from nimblevm.relay.well_formed import check_well_formed

CASES = sorted((Path(__file__).parent.parent / "golden" / "type_errors").glob("*.rly"))
MARK = "// ERROR\n"


def test_there_are_enough() -> None:
    assert len(CASES) >= 25


@pytest.mark.parametrize("path", CASES, ids=lambda p: p.stem)
def test_message(path: Path, request: pytest.FixtureRequest) -> None:
    program, _, expected = path.read_text().partition(MARK)
    module = parse_module(program, path.name)
    check_well_formed(module)
    with pytest.raises(RelayTypeError) as caught:
        infer_type(module)
    message = "".join(f"// {line}\n" for line in str(caught.value).splitlines())
    if request.config.getoption("--update-golden", default=False):
        path.write_text(program + MARK + message)
    else:
        assert message == expected
