"""Files appear under their name only when they are complete."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from nimblevm.errors import FileError
from nimblevm.files import check_new_file, new_file, path_text, write_text


def test_new_file(tmp_path: Path) -> None:
    place = tmp_path / "a"
    write_text(place, "old")
    with new_file(place) as file:
        file.write(b"new")
        assert place.read_text() == "old"
    assert place.read_text() == "new"
    assert os.listdir(tmp_path) == ["a"]


def write_half(place: Path, error: type[BaseException]) -> None:
    with new_file(place) as file:
        file.write(b"half")
        raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_what_fails_leaves_all_as_it_was(error: type[BaseException], tmp_path: Path) -> None:
    place = tmp_path / "a"
    for before in ([], ["a"]):
        with pytest.raises(error):
            write_half(place, error)
        assert os.listdir(tmp_path) == before
        place.write_text("old")
    assert place.read_text() == "old"


def test_errors_name_the_path(tmp_path: Path) -> None:
    place = tmp_path / "none" / "a"
    with pytest.raises(FileError, match="none/a") as caught:
        write_text(place, "")
    assert caught.value.errno == errno.ENOENT
    with pytest.raises(FileError) as caught, new_file(tmp_path / "a"):
        raise OSError("9 requested and 3 written")  # as numpy does
    assert (caught.value.errno, caught.value.strerror) == (errno.EIO, "9 requested and 3 written")
    for name, why in (("a\0b", "NUL"), ("\ud800", "surrogates")):
        with pytest.raises(FileError, match=why):
            write_text(name, "")


def test_places_are_checked_without_writing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("none/file")
    for good in ("file", "new"):
        check_new_file(tmp_path / good)
    check_new_file("/dev/full")
    for bad, problem in (
        (".", errno.EISDIR),
        ("none/a", errno.ENOENT),
        ("file/a", errno.ENOENT),
        ("link", errno.ENOENT),
    ):
        with pytest.raises(FileError) as caught:
            check_new_file(tmp_path / bad)
        assert (caught.value.errno, caught.value.filename) == (problem, str(tmp_path / bad))
    assert sorted(os.listdir(tmp_path)) == ["file", "link"]


def test_links_and_devices(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    write_text(tmp_path / "link", "text \udcff")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "text ?"
    write_text("/dev/null", "text")
    assert not os.path.isfile("/dev/null")
    with pytest.raises(FileError, match="/dev/full"):
        write_text("/dev/full", "text")


def test_names_that_are_no_text(tmp_path: Path) -> None:
    name = os.fsdecode(os.fsencode(tmp_path) + b"/\xff")
    assert path_text(name) == name
    write_text(name, "text")
    assert os.listdir(os.fsencode(tmp_path)) == [b"\xff"]
