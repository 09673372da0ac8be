import json
import random
import shutil

import pytest

from transformer.training.integrity import (
    CHECKSUMS_FILE,
    DamagedCheckpoint,
    read_checked,
    verify,
    write_checked,
    write_checksums,
)


@pytest.fixture
def folder(tmp_path):
    """Two items; the arrays in more than one read."""
    folder = tmp_path / "7"
    (folder / "state" / "d").mkdir(parents=True)
    (folder / "meta").mkdir()
    (folder / "state" / "d" / "array").write_bytes(random.Random(0).randbytes((2 << 20) + 7))
    (folder / "state" / "empty").touch()
    (folder / "meta" / "metadata").write_text('{"step": 7}', encoding="utf-8")
    (folder / "of_orbax").write_text("changes later", encoding="utf-8")
    write_checksums(folder)
    return folder


def flip(path, position, mask=1):
    content = bytearray(path.read_bytes())
    content[position] ^= mask
    path.write_bytes(content)


def test_checksums_are_those_of_the_standard(folder):
    sums = json.loads((folder / CHECKSUMS_FILE).read_text())
    assert sums["meta/metadata"] == [11, 0x6CDD36BB]
    assert sums["state/empty"] == [0, 0]
    assert sums.keys() == {"meta/metadata", "state/d/array", "state/empty"}


def test_what_was_saved_passes(folder, tmp_path):
    assert verify(folder) and verify(folder, "meta")
    shutil.copytree(folder, tmp_path / "copy" / "elsewhere")
    assert verify(tmp_path / "copy" / "elsewhere")
    (folder / "of_orbax").write_text("is no item's", encoding="utf-8")
    assert verify(folder)


def test_every_flipped_byte_is_found(folder):
    array, chosen = folder / "state" / "d" / "array", random.Random(1)
    size = array.stat().st_size
    ends = [0, (1 << 20) - 1, 1 << 20, size - 1]
    for position in [*ends, *(chosen.randrange(size) for _ in range(20))]:
        mask = chosen.randrange(1, 256)
        flip(array, position, mask)
        with pytest.raises(DamagedCheckpoint, match=r"7: damaged .*state/d/array: not the bytes"):
            verify(folder)
        assert verify(folder, "meta")
        flip(array, position, mask)
    assert verify(folder)


def test_a_cut_or_missing_file_is_named(folder):
    array = folder / "state" / "d" / "array"
    array.write_bytes(array.read_bytes()[:-3])
    with pytest.raises(DamagedCheckpoint, match="state/d/array: 2097156 bytes, expected 2097159"):
        verify(folder)
    array.unlink()
    with pytest.raises(DamagedCheckpoint, match="state/d/array: No such file or directory"):
        verify(folder)


@pytest.mark.parametrize("content", ["", "{", "{}", "[1]", '{"meta/metadata": 5}', "\udcff"])
def test_damaged_checksums_are_damage(folder, content):
    (folder / CHECKSUMS_FILE).write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(DamagedCheckpoint, match=CHECKSUMS_FILE):
        verify(folder)


def test_no_checksums(folder):
    (folder / CHECKSUMS_FILE).unlink()
    assert not verify(folder)


def test_checked_json(tmp_path):
    path = tmp_path / "validation.json"
    assert read_checked(path) is None
    write_checked(path, {"loss": 2.5})
    assert read_checked(path) == {"loss": 2.5}
    assert [p.name for p in tmp_path.iterdir()] == ["validation.json"]
    for position in range(path.stat().st_size):
        flip(path, position)
        assert read_checked(path) is None
        flip(path, position)
    assert read_checked(path) == {"loss": 2.5}
