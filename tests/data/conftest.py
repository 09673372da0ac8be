"""Small text files, and settings that keep caches inside the test's own folder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from transformer.config import DataConfig


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str | bytes], str]:
    """Writes a file, text as UTF-8, and returns its path."""

    def write_file(name: str, content: str | bytes) -> str:
        path = tmp_path / name
        path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        return str(path)

    return write_file


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., DataConfig]:
    """A `DataConfig` with its data directory in `tmp_path`."""

    def make(**values: Any) -> DataConfig:
        return DataConfig(data_dir=str(tmp_path / "cache"), **values)

    return make
