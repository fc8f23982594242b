"""The tests' own cache of object code: one text and target compile once, another one anew."""

from __future__ import annotations

from pathlib import Path

from nimblevm.kernels.llvm import TargetInfo
from tests.object_cache import kept


def test_a_text_compiles_once_for_each_target(tmp_path: Path) -> None:
    asked = []

    def compile_text(text: str, info: TargetInfo) -> bytes:
        asked.append((text, info.features))
        return f"{text} for {info.features}".encode()

    wide, narrow = TargetInfo("x86_64", ("avx2",)), TargetInfo("x86_64", ())
    for _ in range(2):
        compile_once = kept(compile_text, tmp_path)  # a later process
        for text, info in (("a", wide), ("a", narrow), ("b", wide)):
            assert compile_once(text, info) == f"{text} for {info.features}".encode()
    assert asked == [("a", ("avx2",)), ("a", ()), ("b", ("avx2",))]
    assert len(list(tmp_path.iterdir())) == 3
