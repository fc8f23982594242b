"""Sequencing, switches and verification of passes."""

from __future__ import annotations

import pytest

from nimblevm.compiler import pass_base
from nimblevm.compiler.pass_base import FixedPoint, Pass, PassContext, Sequential
from nimblevm.errors import CompileError, InternalError
from nimblevm.relay.infer_type import infer_type
from nimblevm.relay.ir import Function, Var
from nimblevm.relay.module import IRModule
from nimblevm.relay.parser import parse_module

TEXT = '#[version = "0.0.5"]\ndef @main(%x: float32) { tanh(%x) }'


@pytest.fixture
def mod() -> IRModule:
    return infer_type(parse_module(TEXT))


def break_scope(mod: IRModule, ctx: PassContext) -> IRModule:
    result = mod.shallow_copy()
    main = mod.function("main")
    result["main"] = Function(main.params, Var("free", main.params[0].checked_type))
    return result


def test_passes_run_in_order_and_report(mod: IRModule) -> None:
    seen: list[str] = []
    steps = [Pass(name, lambda m, c: m) for name in ("a", "b")]
    context = PassContext(on_pass=lambda name, seconds: seen.append(name))
    assert Sequential(steps)(mod, context) is mod
    assert seen == ["a", "b"]


def test_a_pass_that_is_off_does_not_run(mod: IRModule) -> None:
    steps = Sequential([Pass("breaks", break_scope)])
    assert steps(mod, PassContext(frozenset({"breaks"}))) is mod


def test_a_required_pass_stays_on(mod: IRModule) -> None:
    steps = Sequential([Pass("needed", lambda m, c: m, required=True)])
    with pytest.raises(CompileError, match="needed can't be turned off"):
        steps(mod, PassContext(frozenset({"needed"})))


def test_unknown_names_are_refused(mod: IRModule) -> None:
    with pytest.raises(CompileError, match=r"unknown passes: typo; known: a$"):
        Sequential([Pass("a", lambda m, c: m)])(mod, PassContext(frozenset({"typo"})))


def test_verify_names_the_pass_that_broke_the_program(mod: IRModule) -> None:
    with pytest.raises(InternalError, match="pass breaks broke the program"):
        Pass("breaks", break_scope)(mod, PassContext(verify=True))


def test_verify_notices_a_pass_that_writes_to_its_argument(mod: IRModule) -> None:
    def break_in_place(mod: IRModule, ctx: PassContext) -> IRModule:
        mod["main"] = break_scope(mod, ctx).function("main")
        return mod

    with pytest.raises(InternalError, match="pass breaks broke the program"):
        Pass("breaks", break_in_place)(mod, PassContext(verify=True))


def test_verify_blames_no_pass_for_what_came_broken(mod: IRModule) -> None:
    steps = Sequential([Pass("a", lambda m, c: m)])
    with pytest.raises(InternalError, match="the program was broken before the first pass"):
        steps(break_scope(mod, PassContext()), PassContext(verify=True))


def test_verify_looks_once_at_what_no_pass_changes(
    mod: IRModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[IRModule] = []
    monkeypatch.setattr(pass_base, "check_well_formed", looked.append)
    copies = [Pass(name, lambda m, c: m.shallow_copy()) for name in ("a", "b")]
    Sequential(copies)(mod, PassContext(verify=True))
    assert looked == [mod]


def test_fixed_point_stops_when_nothing_changes(mod: IRModule) -> None:
    runs: list[int] = []

    def once(module: IRModule, ctx: PassContext) -> IRModule:
        runs.append(1)
        if len(runs) > 1:
            return module
        result = module.shallow_copy()
        result["other"] = module.function("main")
        return result

    FixedPoint([Pass("once", once)], rounds=5)(mod, PassContext())
    assert len(runs) == 2
