"""Pass objects and contexts."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,list-item,operator,attr-defined"
# Passes and instruments are written as people who come from TVM write them.

from __future__ import annotations

import pytest

from nimblevm.compiler.transform import (
    PassContext,
    PassInstrument,
    PassTimingInstrument,
    Sequential,
    build_config,
    function_pass,
    module_pass,
    pass_instrument,
    print_ir,
)
from nimblevm.errors import CompileError
from nimblevm.relay.module import IRModule
from nimblevm.relay.parser import parse_module

MOD = parse_module('#[version = "0.0.5"]\ndef @main(%x: float32) { exp(%x) }')


@function_pass(opt_level=1)
def same(func, mod, ctx):
    return func


@module_pass(opt_level=3, name="Empty")
class Empty:
    def transform_module(self, mod, ctx):
        return IRModule()


def test_contexts_nest_and_end() -> None:
    assert PassContext.current().opt_level == 2
    with PassContext(opt_level=3) as outer:
        with PassContext(opt_level=0) as inner:
            assert PassContext.current() is inner
        assert PassContext.current() is outer
        with outer:
            assert PassContext.current() is outer
    assert PassContext.current().opt_level == 2


def test_sequential_asks_level_and_names() -> None:
    seq = Sequential([same, Empty()])
    assert len(seq(MOD)) == 1
    with PassContext(opt_level=3):
        assert len(seq(MOD)) == 0
    with PassContext(opt_level=3, disabled_pass=["Empty"]):
        assert len(seq(MOD)) == 1
    with PassContext(opt_level=0, required_pass=["Empty"]):
        assert len(seq(MOD)) == 0


def test_a_pass_called_by_itself_runs() -> None:
    with PassContext(opt_level=0, disabled_pass=["Empty"]):
        assert len(Empty()(MOD)) == 0


def test_required_passes_run_before() -> None:
    order: list[str] = []

    class Watch(PassInstrument):
        def run_before_pass(self, mod, info):
            order.append(info.name)

    @module_pass(opt_level=0, required=["same"])
    def last(mod, ctx):
        return mod

    with PassContext(instruments=[Watch()]):
        Sequential([last, same])(MOD)
    assert order == ["sequential", "same", "last", "same"]

    @module_pass(opt_level=0, required=["nobody"])
    def lost(mod, ctx):
        return mod

    with pytest.raises(CompileError, match="no pass is named 'nobody'"):
        Sequential([lost])(MOD)


def test_instruments_may_stop_a_pass_and_time_it() -> None:
    class Stop(PassInstrument):
        def should_run(self, mod, info):
            return info.name != "Empty"

    timing = PassTimingInstrument()
    with PassContext(opt_level=3, instruments=[Stop(), timing]):
        assert len(Sequential([Empty(), same])(MOD)) == 1
    assert [name for name, _ in timing.times] == ["same", "sequential"]
    assert "same" in timing.render()


def test_mistakes_are_told() -> None:
    with pytest.raises(ValueError, match="opt_level"):
        function_pass(name="f")
    with pytest.raises(TypeError, match="transform_function"):
        function_pass(opt_level=1)(Empty.__wrapped__)
    with pytest.raises(TypeError, match="call it"):
        Sequential([Empty])
    with pytest.raises(TypeError, match="takes an IRModule, not Function"):
        same(MOD["main"])
    with pytest.raises(TypeError, match="disabled_pass must be a list"):
        PassContext(disabled_pass="Empty")

    @function_pass(opt_level=0)
    def nothing(func, mod, ctx):
        return None

    with pytest.raises(CompileError, match="must return a Function for @main, not NoneType"):
        nothing(MOD)


def test_print_ir(capsys: pytest.CaptureFixture[str]) -> None:
    assert print_ir("here")(MOD) is MOD
    assert "here\n#[version" in capsys.readouterr().err


def test_pass_instrument_makes_a_class_one() -> None:
    @pass_instrument
    class Names:
        def __init__(self, first):
            self.seen = [first]

        def run_before_pass(self, mod, info):
            self.seen.append(info.name)

    watch = Names("start")
    assert isinstance(watch, PassInstrument)
    with PassContext(instruments=[watch]):
        same(MOD)
    assert watch.seen == ["start", "same"]
    assert Names.__name__ == "Names"


def test_build_config_is_a_context() -> None:
    seen = []
    with build_config(
        opt_level=3,
        disabled_pass=["x"],
        trace=lambda mod, info, before: seen.append((info.name, before)),
    ):
        assert PassContext.current().opt_level == 3
        assert PassContext.current().disabled_pass == ("x",)
        same(MOD)
    assert seen == [("same", True), ("same", False)]
