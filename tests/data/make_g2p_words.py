"""Writes tests/data/g2p_words.json: the phonemes that g2p-en 2.1.0 predicts for the words in g2p_words.txt.

Run from the repository root: python -m tests.data.make_g2p_words
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.workloads.g2p_package import package_predictor

HERE = Path(__file__).parent


def main() -> None:
    predict = package_predictor().predict
    words = (HERE / "g2p_words.txt").read_text().split()
    lines = [f"{json.dumps(word)}: {json.dumps(' '.join(predict(word)))}" for word in words]
    (HERE / "g2p_words.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
