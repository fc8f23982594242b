"""Every rule that the language has for dims, on every path: the oracle, machine code, the kernel IR, passes off.

A caller that lies (through an ADT field, a ref, a closure, an input) gets a typed error that names function, source
line, dim and both values; never a wrong answer.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

import nimblevm as nvm
from nimblevm.errors import (
    InvalidInput,
    NimbleError,
    RelaySyntaxError,
    RelayTypeError,
    ShapeMismatch,
)
from nimblevm.relay.interpreter import evaluate
from tests.dims.rules import REFUTED, RULES, Bad, value_of
from tests.properties.compare import assert_same

HEADER = '#[version = "0.0.5"]\n'

FAST: dict[str, dict[str, Any]] = {
    "native": {"verify": True},
    "ir": {"native": False},
    "plain": {"native": False, "passes_off": ("inline", "simplify", "fold_constant", "cse", "dead_code")},
}  # fmt: skip
SLOW: dict[str, dict[str, Any]] = {
    "boxed": {"native": False, "unbox": False},
    "unplanned": {"native": False, "plan_memory": False},
    "plain_boxed_native": {"unbox": False, "passes_off": ("inline", "simplify", "cse", "dead_code", "plan_memory")},
    "not_inlined": {"passes_off": ("inline",)},
    "not_simplified": {"native": False, "passes_off": ("simplify",)},
    "not_folded": {"native": False, "passes_off": ("fold_constant",)},
    "no_cse": {"native": False, "passes_off": ("cse",)},
    "dead_code_kept": {"native": False, "passes_off": ("dead_code",)},
}  # fmt: skip


def parse(name: str) -> Any:
    return nvm.relay.parse(HEADER + RULES[name].text, source_name=f"{name}.rly")


def check_rule(name: str, options: dict[str, Any]) -> None:
    mod = parse(name)
    with nvm.compile(mod, **options) as exe, nvm.VirtualMachine(exe) as vm:
        for specs in RULES[name].good:
            args = [value_of(spec, exe) for spec in specs]
            assert_same(vm.run(*args), evaluate(mod, args))
        for bad in RULES[name].bad:
            args = [value_of(spec, exe) for spec in bad.args]
            with pytest.raises((ShapeMismatch, InvalidInput)) as oracle:
                evaluate(mod, args)
            check_oracle_message(str(oracle.value), bad)
            with pytest.raises(bad.error) as caught:
                vm.run(*args)
            check_message(name, str(caught.value), bad)
        if RULES[name].good:  # the VM works on
            vm.run(*(value_of(spec, exe) for spec in RULES[name].good[0]))


def check_message(name: str, message: str, bad: Bad) -> None:
    first = message.splitlines()[0]
    assert bad.words in first, message
    assert re.search(rf"expected {bad.expected}\b.*got {bad.got}\b", first), message
    assert "@" in first, message
    if not issubclass(bad.error, InvalidInput):
        place = re.search(r"\(in @([\w$]+) at ([\w.]+):(\d+):\d+\)", first)
        assert place is not None, message
        assert place[2] == f"{name}.rly", message
        lines = (bad.line,) if isinstance(bad.line, int) else bad.line
        assert lines is None or int(place[3]) in lines, message


def check_oracle_message(message: str, bad: Bad) -> None:
    for number in (bad.expected, bad.got):
        assert re.search(rf"\b{number}\b", message), message


@pytest.mark.parametrize("option", FAST)
@pytest.mark.parametrize("name", RULES)
def test_rule(name: str, option: str) -> None:
    check_rule(name, FAST[option])


@pytest.mark.slow
@pytest.mark.parametrize("option", SLOW)
@pytest.mark.parametrize("name", RULES)
def test_rule_with_passes_off(name: str, option: str) -> None:
    check_rule(name, SLOW[option])


@pytest.mark.parametrize("name", REFUTED)
def test_refuted(name: str) -> None:
    text, words = REFUTED[name]
    with pytest.raises((RelayTypeError, RelaySyntaxError)) as caught:
        nvm.relay.parse(HEADER + text, source_name=f"{name}.rly")
    for word in (f"{name}.rly:", *words):
        assert word in str(caught.value), f"{word!r} is not in: {caught.value}"


@pytest.mark.parametrize("name", [name for name, rule in RULES.items() if rule.checks is not None])
def test_what_facts_prove_is_not_checked_again(name: str) -> None:
    with nvm.compile(parse(name), native=False) as exe:
        assert len(re.findall(r"\bCheckDim\b", exe.disassemble())) == RULES[name].checks


def test_saved_program_checks_too() -> None:
    name = "field_claims_a_name"
    with nvm.load(nvm.compile(parse(name)).to_bytes(), native=False) as exe:
        with nvm.VirtualMachine(exe) as vm:
            for bad in RULES[name].bad:
                with pytest.raises(bad.error) as caught:
                    vm.run(*(value_of(spec, exe) for spec in bad.args))
                check_message(name, str(caught.value), bad)


def test_errors_are_of_one_family() -> None:
    for rule in RULES.values():
        assert all(issubclass(bad.error, NimbleError) for bad in rule.bad)
