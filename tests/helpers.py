"""What tests of several parts share."""

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np


def normal(seed: int, *shape: int) -> jax.Array:
    """Standard normal float32 numbers."""
    return jax.random.normal(jax.random.key(seed), shape)


def temporary_bytes(function: Callable, *shapes: tuple[tuple[int, ...], Any]) -> int:
    """Memory that the compiled function takes besides its arguments and results.

    Args:
        function: of arrays.
        shapes: (shape, type) of each array.
    """
    arguments = [jax.ShapeDtypeStruct(*shape) for shape in shapes]
    analysis = jax.jit(function).lower(*arguments).compile().memory_analysis()
    assert analysis is not None
    return analysis.temp_size_in_bytes


def png_rows(path: Path) -> np.ndarray:
    """The encoded pixels of an RGBA PNG file by row; checks that the file is whole.

    Enough to tell a picture from an empty one without a library for images.
    """
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, packed, header = 8, b"", b""
    while at < len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert data[at + 8 + size : at + 12 + size] == struct.pack(">I", zlib.crc32(kind + body))
        header = body if kind == b"IHDR" else header
        packed += body if kind == b"IDAT" else b""
        at += 12 + size
    _, height, depth, colours = struct.unpack(">IIBB", header[:10])
    assert (depth, colours) == (8, 6)
    return np.frombuffer(zlib.decompress(packed), np.uint8).reshape(height, -1)[:, 1:]


def train_quietly(config: Any, workdir: Path) -> tuple[Any, str]:
    """The `TrainResult`, and what the training said."""
    from rich.console import Console

    from transformer.training.loop import train

    output = io.StringIO()
    result = train(config, workdir, Console(file=output, width=200))
    return result, output.getvalue()


def wordpiece(words: str) -> Any:
    """A lower-casing WordPiece tokenizer of these words, separated by spaces, and punctuation.

    Ids: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, then the words from 5 on.
    """
    from transformer.data.pretrained_tokenizer import PretrainedTokenizer
    from transformer.data.tokenizer import SpecialIds
    from transformer.data.wordpiece import CONTROLS, wordpiece_json

    tokens = [*CONTROLS.values(), *words.split()]
    return PretrainedTokenizer(wordpiece_json(tokens, {}), SpecialIds(0, 2, 3, (0, 1, 2, 4)))
