"""What a training has to know before its first step, found out so that all hosts know the same."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from transformer.config import Config
from transformer.data.pipeline import Data, Split, prepare
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError
from transformer.parallel import hosts
from transformer.training.checkpoint import last_intact
from transformer.training.meta import Meta


def last_saved(workdir: Path, say: Callable[[str], None]) -> Meta | None:
    """Of the checkpoint that training goes on from: the last one that is not damaged, if any.

    One host reads them all, to the last byte.

    Raises:
        UserError: all are damaged, or not all hosts see the same directory.
    """
    hosts.require_shared(workdir)
    saved = None
    with hosts.together():
        if hosts.first():
            saved = last_intact(workdir / "checkpoints", lambda text: say(f"warning: {text}"))
    values = hosts.from_first(saved and asdict(saved))
    return saved or (Meta(**values) if values else None)


def read_data(config: Config, tokenizer: Tokenizer | None, say: Callable[[str], None]) -> Data:
    """The data of a run (see `prepare`). A tokenizer that has to be made is made by host 0.

    What host 0 keeps in ``data.data_dir`` the others find there, if it is theirs too.

    Raises:
        UserError: the data cannot be used, or is not the same for all hosts.
    """
    decoder = config.model.architecture == "decoder"

    def read(tokenizer: Tokenizer | None) -> Data:
        return prepare(config.data, tokenizer, ("train", "validation"), say, decoder)

    data = None
    with hosts.together():
        if hosts.first():
            data = read(tokenizer)
    made = hosts.from_first(data and data.tokenizer.to_json())
    with hosts.together():
        data = data or read(Tokenizer.from_json(made or {}))
    found = [_fingerprint(split) for split in (data.train, data.validation)]
    same = hosts.from_first(found) == found
    with hosts.together():
        if not same:
            raise UserError(
                f"data.train, data.validation: other tokens than those of host 0 (fingerprints "
                f"{found}); expected the same files"
            )
    return data


def _fingerprint(split: Split | None) -> str | None:
    return None if split is None else split.fingerprint
