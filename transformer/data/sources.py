"""Where text pairs come from: the dictionary, TFDS translation sets, local files."""

import gzip
import importlib
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transformer.config import DataConfig
from transformer.data import dictionary
from transformer.errors import UserError, did_you_mean, did_you_mean_file

SplitName = Literal["train", "validation", "test"]
Log = Callable[[str], None]

# Records a TFDS data source is asked for at once: ten times faster than one by one.
_RECORDS = 10_000

CACHE = Path.home() / ".cache" / "transformer"
"""Where everything is kept that can be made again."""


@dataclass(frozen=True)
class Pairs:
    """Source texts with, for each, all of its right answers (at least one)."""

    sources: list[str]
    references: list[list[str]]

    def __len__(self) -> int:
        return len(self.sources)


def data_directory(config: DataConfig) -> Path:
    """Where prepared sets and token stores are kept."""
    if config.data_dir is None:
        return CACHE
    return Path(config.data_dir).expanduser()


def read(config: DataConfig, split: SplitName, log: Log = print) -> Pairs | None:
    """The pairs of one split, without those that are blank on either side.

    Args:
        config: names the source.
        split: which part of it.
        log: is told how many pairs were read and how many were blank.

    Returns:
        None if the source has no such split.

    Raises:
        UserError: a file, package or set is missing, broken or holds no pairs.
    """
    if config.origin == "files":
        paths: tuple[str, ...] = getattr(config, split)
        pairs = read_files(paths, f"data.{split}") if paths else None
    elif config.origin == "cmudict":
        words = dictionary.load()[split]
        pairs = Pairs(list(words), list(words.values()))
    else:
        pairs = read_tfds(config, split)
    if pairs is None:
        return None
    kept = [i for i, text in enumerate(pairs.sources) if text.strip() and _any_text(pairs, i)]
    blank = len(pairs) - len(kept)
    if not kept:
        raise UserError(f"data.{split}: no pairs in {len(pairs)} lines of {config.origin}")
    note = f" ({blank} of {len(pairs)} blank on a side, left out)" if blank else ""
    log(f"{split}: {len(kept)} pairs{note}")
    if not blank:
        return pairs
    return Pairs([pairs.sources[i] for i in kept], [pairs.references[i] for i in kept])


def _any_text(pairs: Pairs, index: int) -> bool:
    return any(reference.strip() for reference in pairs.references[index])


# Local files


def read_lines(path: str | Path, setting: str) -> list[str]:
    """The lines of a UTF-8 text file, gzip or not.

    Lines end at "\\n" alone, so U+2028 and the like are text; the "\\r" of a CRLF
    and a byte-order mark are removed.

    Raises:
        UserError: the file is missing, unreadable, or not UTF-8 (with the line).
    """
    return _lines(read_text(path, setting))


def read_text(path: str | Path, setting: str) -> str:
    """A UTF-8 text file, gzip or not, whole, without a byte-order mark; a CRLF becomes "\\n".

    Raises:
        UserError: the file is missing, unreadable, or not UTF-8 (with the line).
    """
    path = Path(path).expanduser()
    try:
        data = path.read_bytes()
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
    except FileNotFoundError:
        raise UserError(f"{setting} {path}: no such file{did_you_mean_file(path)}") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{setting} {path}: broken gzip file ({error})") from error
    except OSError as error:
        raise UserError(f"{setting} {path}: {error.strerror}") from error
    return _decode(data, path)


def decode_lines(data: bytes, place: object, first: int = 1) -> list[str]:
    """The lines of UTF-8 text, as `read_lines` splits them.

    Args:
        data: whole lines.
        place: the name of the file, for an error.
        first: number of the first line in that file.

    Raises:
        UserError: a byte is not UTF-8; names file and line.
    """
    return _lines(_decode(data, place, first))


def check_text(text: str, place: object) -> None:
    """Refuses what only looks like text: half a surrogate pair, which UTF-8 cannot spell.

    Arguments of the command line that were not UTF-8 become such, and escapes in JSON can be.

    Raises:
        UserError: names the place.
    """
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        code = ord(text[error.start])
        raise UserError(
            f"{place}: U+{code:04X} at position {error.start} is no character; expected UTF-8 text"
        ) from error


def _decode(data: bytes, place: object, first: int = 1) -> str:
    try:
        text = data.decode("utf-8-sig" if first == 1 else "utf-8")
    except UnicodeDecodeError as error:
        line = first + data.count(b"\n", 0, error.start)
        raise UserError(
            f"{place}:{line}: byte 0x{data[error.start]:02x} is not UTF-8; expected UTF-8 text"
        ) from error
    return text.replace("\r\n", "\n").removesuffix("\r")


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def read_files(paths: tuple[str, ...], setting: str) -> Pairs:
    """Pairs from one TSV file (source TAB target) or from two line-parallel files.

    Raises:
        UserError: as `read_lines`; unequal numbers of lines; a row that is not two columns.
    """
    if len(paths) == 1:
        return _read_tsv(paths[0], setting)
    source, target = (read_lines(path, setting) for path in paths)
    if len(source) != len(target):
        raise UserError(
            f"{setting}: {paths[0]} has {len(source)} lines and {paths[1]} has {len(target)}; "
            "expected as many"
        )
    return Pairs(source, [[text] for text in target])


def _read_tsv(path: str, setting: str) -> Pairs:
    sources, references = [], []
    for number, line in enumerate(read_lines(path, setting), start=1):
        columns = line.split("\t") if line.strip() else ["", ""]
        if len(columns) != 2:
            raise UserError(
                f"{path}:{number}: {len(columns)} column{'s' * (len(columns) > 1)}; "
                "expected two, source TAB target"
            )
        sources.append(columns[0])
        references.append([columns[1]])
    return Pairs(sources, references)


# TensorFlow Datasets


def read_tfds(config: DataConfig, split: SplitName) -> Pairs | None:
    """Pairs from a TFDS set whose supervised keys are two texts, such as any translation set.

    The set is built in array_record, which needs no TensorFlow, unless an earlier
    run has left it in the data directory.

    Raises:
        UserError: the set does not exist, cannot be built here, or is not of text pairs.
    """
    builder, where = tfds_set(config)
    source_key, target_key = _tfds_keys(builder, config.source_language, where)
    if split not in builder.info.splits:
        return None
    sources: list[str] = []
    references: list[list[str]] = []
    for place, record in tfds_records(builder, split, where):
        sources.append(decoded(record[source_key], place))
        answers = record[target_key]
        answers = [answers] if isinstance(answers, bytes | str) else answers
        references.append([decoded(answer, place) for answer in answers])
    return Pairs(sources, references)


def read_tfds_texts(config: DataConfig, split: SplitName) -> list[str] | None:
    """The texts of a TFDS set with a feature ``text``, such as lm1b or wikipedia.

    Raises:
        UserError: as `read_tfds`; the set has no such feature.
    """
    builder, where = tfds_set(config)
    features: Any = builder.info.features
    if "text" not in features or not is_text(features["text"]):
        names = ", ".join(features)
        raise UserError(f"{where}: expected a feature `text`; its features are {names}")
    if split not in builder.info.splits:
        return None
    return [decoded(record["text"], place) for place, record in tfds_records(builder, split, where)]


def tfds_records(builder: Any, split: SplitName, where: str) -> Iterator[tuple[str, Any]]:
    """Each record of a split, which must exist, with what an error calls it.

    Raises:
        UserError: the split cannot be read here.
    """
    try:
        records = builder.as_data_source(split=split)
    except Exception as error:
        raise UserError(f"{where}: cannot be read here: {_one_line(error)}") from error
    for start in range(0, len(records), _RECORDS):
        numbers = range(start, min(start + _RECORDS, len(records)))
        for number, record in zip(numbers, records.__getitems__(list(numbers)), strict=True):
            yield f"{where}, {split}[{number}]", record


def tfds_set(config: DataConfig) -> tuple[Any, str]:
    """The builder of ``data.dataset = tfds:NAME``, prepared, and what an error calls it.

    Raises:
        UserError: the set does not exist or cannot be built here.
    """
    where = f"data.dataset = {config.origin!r}"
    name = config.origin.removeprefix("tfds:")
    return _tfds_builder(name, data_directory(config) / "tfds", where), where


def _tfds_builder(name: str, directory: Path, where: str) -> Any:
    import tensorflow_datasets as tfds  # here, because most runs do not need it

    # TFDS stops looking for sets at the first that needs TensorFlow, before WMT's.
    importlib.import_module("tensorflow_datasets.translate")
    importlib.import_module("transformer.data.cmudict")
    try:
        builder = tfds.builder(name, data_dir=directory, file_format="array_record")
        builder.download_and_prepare()
    except UserError:
        raise
    except tfds.core.DatasetNotFoundError as error:
        known = tfds.list_builders(with_community_datasets=False)
        hint = did_you_mean(name.partition("/")[0], known, "tfds:{}")
        raise UserError(f"{where}: TFDS has no such set{hint}") from error
    except ImportError as error:
        missing = (error.name or "a package").split(".")[0]
        raise UserError(
            f"{where}: building this set needs {missing}, which is not installed: pip install "
            f"{missing}, or prepare it elsewhere in array_record and copy it to {directory}"
        ) from error
    except Exception as error:  # each set's own code runs here: network, disk, licences
        raise UserError(f"{where}: TFDS could not build it: {_one_line(error)}") from error
    return builder


def _tfds_keys(builder: Any, source_language: str | None, where: str) -> tuple[str, str]:
    """The features that hold the source and the target."""
    keys = builder.info.supervised_keys
    if not keys or len(keys) != 2 or not all(is_text(builder.info.features[k]) for k in keys):
        raise UserError(f"{where}: not a set of text pairs; its features: {builder.info.features}")
    if source_language is None or source_language == keys[0]:
        return keys[0], keys[1]
    if source_language == keys[1]:
        return keys[1], keys[0]
    raise UserError(f"data.source_language = {source_language!r}: expected {keys[0]} or {keys[1]}")


def is_text(feature: Any) -> bool:
    """Whether a feature of a TFDS set is a text, or several."""
    import tensorflow_datasets as tfds

    feature = getattr(feature, "feature", feature)  # a sequence of texts: several answers
    return isinstance(feature, tfds.features.Text)


def decoded(value: Any, place: str) -> str:
    """A text of a record.

    Raises:
        UserError: it is not UTF-8; names the place.
    """
    try:
        return value if isinstance(value, str) else value.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{place}: not UTF-8 ({error})") from error


def _one_line(error: Exception, limit: int = 500) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= limit else text[:limit] + "…"
