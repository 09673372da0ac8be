"""Whether a checkpoint's files are, to the byte, what was saved.

``checksums.json`` in a checkpoint's folder holds size and CRC-32 of every file of its
items. A CRC-32 finds every change within 32 neighbouring bits for certain, so every
flipped byte, and any other but one in 2**32.
"""

import json
import os
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from transformer.errors import UserError

CHECKSUMS_FILE = "checksums.json"

_CHUNK = 1 << 20


class DamagedCheckpoint(UserError):
    """A checkpoint that is not what was saved, or not all of it."""

    def __init__(self, checkpoint: Path, reason: str) -> None:
        super().__init__(f"{checkpoint}: damaged or incomplete checkpoint ({reason})")
        self.checkpoint, self.reason = checkpoint, reason


def write_checksums(checkpoint: Path) -> None:
    """Writes ``checksums.json`` for the items of ``checkpoint``, which are its subfolders.

    Raises:
        OSError: a file cannot be read, or the checksums cannot be written.
    """
    names = sorted(
        path.relative_to(checkpoint).as_posix()
        for item in checkpoint.iterdir()
        if item.is_dir()
        for path in item.rglob("*")
        if path.is_file()
    )
    sums = dict(zip(names, _checksums([checkpoint / name for name in names]), strict=True))
    (checkpoint / CHECKSUMS_FILE).write_text(json.dumps(sums, indent=0), encoding="utf-8")


def verify(checkpoint: Path, item: str = "") -> bool:
    """Compares the files with their checksums; False where there are none.

    Args:
        checkpoint: its folder.
        item: the subfolder to look at alone.

    Raises:
        DamagedCheckpoint: a file is missing, has another size or other content.
    """
    try:
        text = (checkpoint / CHECKSUMS_FILE).read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    except (OSError, ValueError) as error:
        raise DamagedCheckpoint(checkpoint, f"{CHECKSUMS_FILE}: {error}") from error
    wanted = _parsed(checkpoint, text)
    names = [name for name in wanted if name.startswith(f"{item}/" if item else "")]
    # Sizes first: no need to read gigabytes to find that a file is cut.
    for name in names:
        try:
            size = (checkpoint / name).stat().st_size
        except OSError as error:
            raise DamagedCheckpoint(checkpoint, f"{name}: {error.strerror}") from error
        if size != wanted[name][0]:
            reason = f"{name}: {size} bytes, expected {wanted[name][0]}"
            raise DamagedCheckpoint(checkpoint, reason)
    try:
        found = _checksums([checkpoint / name for name in names])
    except OSError as error:
        raise DamagedCheckpoint(checkpoint, str(error)) from error
    for name, checksum in zip(names, found, strict=True):
        if checksum != wanted[name]:
            raise DamagedCheckpoint(checkpoint, f"{name}: not the bytes that were saved")
    return True


def write_checked(path: Path, values: Any) -> None:
    """Writes JSON with its own checksum, all or nothing.

    Raises:
        OSError: it cannot be written.
    """
    text = json.dumps(values)
    new = path.with_suffix(".tmp")
    new.write_text(f"{zlib.crc32(text.encode()):08x} {text}", encoding="utf-8")
    os.replace(new, path)


def read_checked(path: Path) -> Any:
    """What `write_checked` wrote; None if there is no such file, or another's content in it."""
    try:
        checksum, _, text = path.read_text(encoding="utf-8").partition(" ")
    except (OSError, ValueError):
        return None
    return json.loads(text) if checksum == f"{zlib.crc32(text.encode()):08x}" else None


def _parsed(checkpoint: Path, text: str) -> Mapping[str, tuple[int, int]]:
    try:
        sums = {str(name): (int(size), int(crc)) for name, (size, crc) in json.loads(text).items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise DamagedCheckpoint(checkpoint, f"{CHECKSUMS_FILE}: {error}") from error
    if not sums:
        raise DamagedCheckpoint(checkpoint, f"{CHECKSUMS_FILE}: names no file")
    return sums


def _checksums(paths: Sequence[Path]) -> list[tuple[int, int]]:
    # Reading and zlib leave the interpreter's lock.
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
        return list(pool.map(_checksum, paths))


def _checksum(path: Path) -> tuple[int, int]:
    """Size in bytes and CRC-32."""
    size = checksum = 0
    with path.open("rb", buffering=0) as file:
        while chunk := file.read(_CHUNK):
            size, checksum = size + len(chunk), zlib.crc32(chunk, checksum)
    return size, checksum
