"""The page: one file that asks for nothing, whatever the names in it are."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from nimblevm.profiling import Machine, page, write_page
from nimblevm.profiling.page import MOST_POINTS, json_for_html, page_data
from nimblevm.vm.profiler import Profile
from tests.profiling.conftest import Make

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(2)><!-- \u2028 \"'`${1}{{script}}"
)


class Elements(HTMLParser):
    """Tags with attributes, and the text of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.tags and self.tags[-1][0] in ("script", "style"):
            self.raw.append((self.tags[-1][0], data))


def embedded(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def check_page(text: str) -> Elements:
    """One document, nothing from elsewhere, no handlers in markup, and a policy that fits its script and style."""
    found = Elements(text)
    tags = [tag for tag, _ in found.tags]
    assert tags.count("script") == 2
    assert not {"img", "link", "iframe", "object", "embed", "base", "form"} & set(tags)
    for tag, attributes in found.tags:
        assert not any(
            name.startswith("on") or name in ("src", "href", "style") for name in attributes
        ), tag
    policy = next(a["content"] for t, a in found.tags if t == "meta" and a.get("http-equiv"))
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    for kind in ("script", "style"):
        match = re.search(rf"<{kind}>(.*?)</{kind}>", text, re.DOTALL)
        assert match is not None
        digest = base64.b64encode(hashlib.sha256(match[1].encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
        assert "http://" not in match[1].replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in match[1]
    return found


def test_a_profile(tree_profile: Profile, machine: Machine, tmp_path: Path) -> None:
    lines = {"tree.rly": ["one", "two", "  three", "four"]}
    write_page(tree_profile, tmp_path / "p.html", machine, "tree.nvm", [("", "@main")], lines)
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    check_page(text)
    data = embedded(text)
    assert data["title"] == "tree.nvm"
    assert data["runs"] == 2
    assert [k["calls"] for k in data["kernels"]] == [k.calls for k in tree_profile.kernels]
    assert all(k["floorNs"] >= 0 and k["level"] == "l2" for k in data["kernels"])
    flame = data["events"]["flame"]
    assert flame["parent"][0] == -1
    assert all(parent < row for row, parent in enumerate(flame["parent"]))
    assert any(flame["recursive"])
    spans = data["events"]["spans"]
    assert (
        len(
            {
                len(spans[name])
                for name in ("name", "kind", "start", "ns", "depth", "track", "shape")
            }
        )
        == 1
    )
    rows = list(zip(spans["track"], spans["depth"], spans["start"], strict=True))
    assert rows == sorted(rows), "the script searches them by bisection"
    assert data["events"]["memory"]["peak"]["live"] > 0
    assert "four" in {row[5] for row in data["lines"]}


def test_without_events_and_limits(make: Make) -> None:
    profile = make()
    plain = Profile(profile.runs, profile.seconds, profile.kernels, profile.instructions)
    text = page(plain)
    check_page(text)
    data = embedded(text)
    assert data["events"] is None
    assert data["machine"] is None


def test_empty(machine: Machine) -> None:
    text = page(Profile(0, 0.0, (), ()), machine)
    check_page(text)
    assert embedded(text)["kernels"] == []


def test_hostile_names_stay_data(make: Make, machine: Machine) -> None:
    events = [(0, 0, 5, 0, 0, 0), (1, 1, 99, 2, 0, 0), (2, 3, 4, 5, 0, 0), (9, 0, 0, 1, 0, 0)]
    profile = make(events, functions=(HOSTILE,), kernel=HOSTILE, source=HOSTILE)
    text = page(profile, machine, HOSTILE, [(HOSTILE, HOSTILE)])
    found = check_page(text)
    assert embedded(text)["title"] == HOSTILE
    assert embedded(text)["kernels"][0]["name"] == HOSTILE
    assert all("alert" not in data for tag, data in found.raw if tag == "style")
    assert (
        text.count("alert(1)") == text.count("alert(1)\\u003c") + 1
    )  # the one in <title> is escaped
    assert "<script>alert" not in text


@pytest.mark.parametrize("value", ["<", "&", "</script>", "<!--", "]]>", "\u2028", "\ud800"])
def test_json_for_html(value: str) -> None:
    text = json_for_html({"a": [value]})
    assert not set(text) & set("<>&\u2028")
    assert json.loads(text) == {"a": [value]}


def test_huge_profiles_are_thinned(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["nimblevm.profiling.page"], "MOST_SPANS", 500)
    events = [(0, 0, 5, 0, 0, 0)]
    for k in range(30_000):
        events.append((10 * k + 1, 1 + k % 7, 4, 5, 0, 0))
        events.append((10 * k + 9, 1000 + (5000 if k == 12_345 else k % 100), 0, 7, 3, 0))
    data = page_data(make([*events, (400_000, 0, 0, 1, 0, 0)]))
    spans = data["events"]["spans"]
    assert len(spans["start"]) == 500
    assert spans["left"] == 30_001 - 500
    assert max(spans["ns"]) == 400_000  # the longest are kept
    memory = data["events"]["memory"]
    assert len(memory["at"]) <= MOST_POINTS + 4
    assert max(memory["live"]) == memory["peak"]["live"] == 6000
    assert memory["at"] == sorted(memory["at"])


def test_the_script_makes_no_markup() -> None:
    folder = Path(page.__code__.co_filename).parent / "page"
    script = "".join(file.read_text(encoding="utf-8") for file in folder.glob("*.js"))
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "fetch(",
        "import(",
    ):
        assert word not in script
