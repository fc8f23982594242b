"""Effects happen once, in order, and no pass moves or drops one (name_effects); the oracle and the compiler agree
about the moment at which a shared node is evaluated.
"""

from __future__ import annotations

import numpy as np
import pytest

from nimblevm.errors import DivisionByZero
from tests.properties.everywhere import fails_everywhere, run_everywhere

CASES = {
    "a field taken out of a tuple is read before the write": (
        """def @main(%x: int32) {
          let %r = ref(%x);
          let %t = (ref_read(%r), %x);
          let %u = ref_write(%r, 7);
          %t.0
        }""",
        3,
    ),
    "fields that are not taken have their effects": (
        "def @main(%x: int32) { let %r = ref(%x); let %y = (ref_write(%r, 9), %x).1; ref_read(%r) + %y }",
        12,
    ),
    "a dead use says when a shared read runs": (
        "def @main(%x: int32) { let %r = ref(%x); %0 = ref_read(%r); let %d = %0; let %u = ref_write(%r, 9); %0 }",
        3,
    ),
    "a dead use says in which function a shared reference is made": (
        """def @main(%x: int32) {
          %0 = ref(%x);
          let %d = %0;
          let %f = fn () -> int32 { let %v = ref_read(%0) + 1; let %u = ref_write(%0, %v); %v };
          %f() * 10 + %f()
        }""",
        45,
    ),
    "a use in a branch that simplify drops counts": (
        """def @main(%x: int32) {
          let %r = ref(%x);
          %0 = ref_read(%r);
          let %d = if (True) { 1 } else { %0 };
          let %u = ref_write(%r, 5);
          %0 + %d
        }""",
        4,
    ),
    "what both branches share is evaluated before the if": (
        """def @main(%x: int32) {
          let %r = ref(%x);
          %0 = ref_read(%r);
          if (%x > 0) { let %u = ref_write(%r, 9); %0 } else { %0 + 1 }
        }""",
        3,
    ),
    "but after its condition": (
        """def @main(%x: int32) {
          let %r = ref(%x);
          %0 = ref_read(%r);
          if ((let %u = ref_write(%r, 9); %x > 0)) { %0 } else { %0 + 1 }
        }""",
        9,
    ),
    "what a closure shares with its surroundings is evaluated before it": (
        """def @main(%x: int32) {
          let %r = ref(%x);
          %0 = ref_read(%r);
          let %f = fn () -> int32 { %0 };
          let %u = ref_write(%r, 0);
          %f() + %0
        }""",
        6,
    ),
    "what only a closure uses is evaluated at each call": (
        """def @main(%x: int32) {
          let %r = ref(%x);
          %0 = ref_read(%r);
          let %f = fn () -> int32 { %1 = %0 + 1; %1 * %0 };
          let %u = ref_write(%r, 5);
          let %a = %f();
          let %v = ref_write(%r, 7);
          %a * 100 + %f()
        }""",
        3056,
    ),
    "what two clauses share, two blocks deep": (
        """type List[A] { Cons(A, List[A]), Nil, }
        def @main(%x: int32) {
          let %r = ref(%x);
          %0 = ref_read(%r);
          %1 = %0 * 2;
          match (Cons(%x, Nil)) {
            Nil => { %1 },
            Cons(%h, Nil) => { if (%h > 0) { let %u = ref_write(%r, 9); %1 + ref_read(%r) } else { %0 } },
            Cons(_, _) => { %0 },
          }
        }""",
        15,
    ),
    "operands from left to right": (
        """def @f(%r: ref(int32)) -> int32 { let %u = ref_write(%r, ref_read(%r) * 2); ref_read(%r) }
        def @main(%x: int32) { let %r = ref(%x); (@f(%r) - @f(%r)) * 100 + @f(%r) }""",
        -576,
    ),
    "a call that is shared runs once": (
        """def @f(%r: ref(int32)) -> int32 { let %u = ref_write(%r, ref_read(%r) * 2); ref_read(%r) }
        def @main(%x: int32) { let %r = ref(%x); %0 = @f(%r); (%0 + %0) * 100 + ref_read(%r) }""",
        1206,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_effects(name: str) -> None:
    text, expected = CASES[name]
    assert run_everywhere(text, np.int32(3)) == expected


def test_an_if_with_effects_that_is_shared_and_narrowed_runs_once() -> None:
    text = """def @main(%x: Tensor[(?), float32], %c: bool) -> (Tensor[(3), float32], int32) {
      let %r = ref(0);
      let %g = fn (%q: int32) -> Tensor[(3), float32] {
        %0 = if (%c) { let %u = ref_write(%r, ref_read(%r) + 1); %x } else { %x };
        let %s = sum(%0);
        %0
      };
      let %z = %g(1);
      (%z, ref_read(%r))
    }"""
    assert run_everywhere(text, np.ones(3, "float32"), np.bool_(True))[1] == 1


def test_what_fails_and_is_shared_by_branches_fails_before_them() -> None:
    text = """def @main(%x: int32, %y: int32) {
      %0 = divide(%x, %y);
      if (%x > 0) { if (%x > 5) { %0 } else { 3 } } else { %0 + 1 }
    }"""
    assert run_everywhere(text, np.int32(3), np.int32(1)) == 3
    fails_everywhere(text, DivisionByZero, np.int32(3), np.int32(0))
