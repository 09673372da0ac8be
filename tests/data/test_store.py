"""The cached store of tokens: contents, limits, damage, and processes at the same time."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from transformer.config import DataConfig
from transformer.data import store as store_module
from transformer.data.store import fingerprint, open_or_build
from transformer.data.tokenizer import EOS, Tokenizer, train_tokenizer
from transformer.errors import UserError

SOURCES = ["ab", "", "abcde", "c", "ba"]
TARGETS = ["X Y Z", "X", "Y", "", "Z"]


@pytest.fixture
def tokenizer() -> Tokenizer:
    return train_tokenizer(DataConfig(), SOURCES, TARGETS)


def build(directory: Path, tokenizer: Tokenizer, limit: int | None = None):
    key = fingerprint(SOURCES, TARGETS, tokenizer, limit)
    return open_or_build(directory, key, SOURCES, TARGETS, tokenizer, limit)


def test_contents(tmp_path, tokenizer, monkeypatch):
    """Every text, in order, with EOS, also where a chunk of the encoder ends in between."""
    monkeypatch.setattr(store_module, "_CHUNK", 2)
    store = build(tmp_path, tokenizer)
    assert len(store) == 5
    assert store.rows.tolist() == [0, 1, 2, 3, 4]
    for i, (source, target) in enumerate(zip(SOURCES, TARGETS, strict=True)):
        assert store.source(i).tolist() == [*tokenizer.encode_source(source), EOS]
        assert store.target(i).tolist() == [*tokenizer.encode_target(target), EOS]
    assert store.source_lengths.tolist() == [3, 1, 6, 2, 3]
    assert store.target_lengths.tolist() == [4, 2, 2, 1, 2]


def test_too_long_on_either_side_is_left_out(tmp_path, tokenizer):
    """A length limit once had no effect; EOS does not count towards it."""
    assert build(tmp_path, tokenizer, limit=2).rows.tolist() == [1, 3, 4]
    assert build(tmp_path, tokenizer, limit=3).rows.tolist() == [0, 1, 3, 4]
    assert len(build(tmp_path, tokenizer, limit=5)) == 5


def test_the_second_time_nothing_is_encoded(tmp_path, tokenizer, monkeypatch):
    first = build(tmp_path, tokenizer)
    monkeypatch.setattr(store_module, "_encode", None)
    second = build(tmp_path, tokenizer)
    assert np.array_equal(first.source_tokens, second.source_tokens)
    assert isinstance(second.source_tokens, np.memmap)
    assert len(list(tmp_path.iterdir())) == 1


def cut(data: bytes) -> bytes:
    return data[:-13]


def flip(data: bytes) -> bytes:
    return data[:-5] + bytes([data[-5] ^ 1]) + data[-4:]


def empty(data: bytes) -> bytes:
    return b""


def foreign(data: bytes) -> bytes:
    return b"not an array"


@pytest.mark.parametrize("damage", [cut, flip, empty, foreign])
def test_a_damaged_file_is_built_again(tmp_path, tokenizer, damage):
    build(tmp_path, tokenizer)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    build(tmp_path, tokenizer)
    assert path.read_bytes() == whole


def test_an_interrupted_build_leaves_nothing(tmp_path, tokenizer, monkeypatch):
    def interrupt(source, target):
        raise KeyboardInterrupt

    monkeypatch.setattr(store_module.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        build(tmp_path, tokenizer)
    assert list(tmp_path.iterdir()) == []


def test_processes_that_build_at_once(tmp_path):
    code = (
        "import sys; from pathlib import Path\n"
        "from transformer.config import DataConfig\n"
        "from transformer.data.store import fingerprint, open_or_build\n"
        "from transformer.data.tokenizer import train_tokenizer\n"
        "texts = [f'text{i}' for i in range(9973)]\n"
        "tokenizer = train_tokenizer(DataConfig(), texts, texts)\n"
        "key = fingerprint(texts, texts, tokenizer, None)\n"
        "sys.stdin.readline()\n"
        "store = open_or_build(Path(sys.argv[1]), key, texts, texts, tokenizer, None)\n"
        "print(len(store), store.source_tokens.sum(), store.target_tokens.sum())\n"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(3)
    ]
    for process in processes:  # let all go together
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    outputs = {process.communicate()[0] for process in processes}
    assert len(outputs) == 1
    assert outputs.pop().startswith("9973 ")
    assert len(list(tmp_path.iterdir())) == 1


def test_the_fingerprint_sees_every_difference(tokenizer):
    other = train_tokenizer(DataConfig(target_symbols="characters"), SOURCES, TARGETS)
    prints = {
        fingerprint(SOURCES, TARGETS, tokenizer, None),
        fingerprint(SOURCES, TARGETS, tokenizer, 7),
        fingerprint(SOURCES, TARGETS, other, None),
        fingerprint(TARGETS, SOURCES, tokenizer, None),
        fingerprint(["a", "bc"], ["d", "e"], tokenizer, None),
        fingerprint(["ab", "c"], ["d", "e"], tokenizer, None),
        fingerprint(["ab"], ["cd", "e"], tokenizer, None),
    }
    assert len(prints) == 7
    assert fingerprint(list(SOURCES), TARGETS, tokenizer, None) in prints


def test_a_directory_that_cannot_be_written(tmp_path, tokenizer):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"data\.data_dir: cannot write .*file"):
        build(tmp_path / "file" / "tokens", tokenizer)


def test_together_both_sides_are_one_sequence_of_the_target_side(tmp_path):
    """Prompts were once spelled in the symbols of sources, which answers do not have."""
    config = DataConfig(source_symbols="characters", target_symbols="words")
    tokenizer = train_tokenizer(config, ["ab"], ["one two", "three"])
    sources, targets = ["one", "two two"], ["two", "one three"]
    key = fingerprint(sources, targets, tokenizer, 6, together=True)
    assert key != fingerprint(sources, targets, tokenizer, 6)
    store = open_or_build(tmp_path, key, sources, targets, tokenizer, 6, together=True)
    assert store.rows.tolist() == [0, 1]
    assert store.source(1).tolist() == [*tokenizer.encode_target("two two"), EOS]
    few = open_or_build(tmp_path, "few", sources, targets, tokenizer, 5, together=True)
    assert few.rows.tolist() == [0]  # begin two two one three end: 6
