"""The package g2p-en's own prediction, run without its dependency nltk.

g2p_en imports nltk for corpora and tagging, which `predict` does not use; small stand-ins satisfy its imports.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


def _stand_ins() -> dict[str, ModuleType]:
    names = ["nltk", "nltk.corpus", "nltk.tokenize", "inflect"]
    modules = {name: ModuleType(name) for name in names}

    class Corpus:
        @staticmethod
        def dict() -> dict[str, Any]:
            return {}

    class Tokenizer:
        def tokenize(self, text: str) -> list[str]:
            return text.split()

    class Data:
        @staticmethod
        def find(name: str) -> None:
            return None

    class Engine:
        pass

    modules["nltk"].pos_tag = lambda words: [(w, "NN") for w in words]  # type: ignore[attr-defined]
    modules["nltk"].data = Data  # type: ignore[attr-defined]
    modules["nltk.corpus"].cmudict = Corpus  # type: ignore[attr-defined]
    modules["nltk.tokenize"].TweetTokenizer = Tokenizer  # type: ignore[attr-defined]
    modules["inflect"].engine = Engine  # type: ignore[attr-defined]
    return modules


def package_predictor() -> Any:
    """A g2p_en.g2p.G2p object; its `predict(word)` gives a list of phonemes. ImportError if not installed."""
    present = {name: sys.modules.get(name) for name in _stand_ins()}
    sys.modules.update(_stand_ins())
    try:
        return importlib.import_module("g2p_en.g2p").G2p()
    finally:
        for name, module in present.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module
