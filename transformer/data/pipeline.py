"""From settings to a tokenizer and tokenised splits."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from transformer.config import DataConfig
from transformer.data import sources
from transformer.data.sources import Log, Pairs, SplitName
from transformer.data.store import TokenStore, fingerprint, open_or_build
from transformer.data.tokenizer import Tokenizer, train_tokenizer
from transformer.errors import UserError

SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")


@dataclass(frozen=True)
class Split:
    """Row i of every field belongs to the same example.

    Attributes:
        sources: source texts.
        references: for each source all of its right answers, at least one.
        pairs: the tokens of each source and its first answer.
        fingerprint: a hash of the texts, the tokenizer and the length limit.
    """

    sources: list[str]
    references: list[list[str]]
    pairs: TokenStore
    fingerprint: str

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def tokens(self) -> tuple[np.ndarray, ...]:
        """Every token of the split, in some arrays."""
        return self.pairs.source_tokens, self.pairs.target_tokens


@dataclass(frozen=True)
class Data:
    """A tokenizer and the splits that were asked for and exist."""

    tokenizer: Tokenizer
    train: Split | None
    validation: Split | None
    test: Split | None

    @property
    def fingerprint(self) -> str | None:
        """Changes with the training texts, the tokenizer and the length limit.

        A run that goes on with another fingerprint would train on other batches.
        """
        return self.train.fingerprint if self.train else None


def prepare(
    config: DataConfig,
    tokenizer: Tokenizer | None = None,
    splits: Collection[SplitName] = SPLITS,
    log: Log = print,
) -> Data:
    """Reads, tokenises and caches the splits of a data set.

    A training source with several right answers becomes several training pairs.
    Training pairs longer than `config.max_length` tokens on either side are left
    out; validation and test stay whole.

    Args:
        config: the data's settings.
        tokenizer: used as it is, e.g. a checkpoint's; None: made from the training split.
        splits: the splits to read.
        log: is told what was read, left out and kept.

    Raises:
        UserError: bad input or settings; see `sources.read` and `train_tokenizer`.
    """
    texts: dict[SplitName, Pairs | None] = {
        name: sources.read(config, name, log) for name in SPLITS if name in splits
    }
    train = texts.get("train")
    if train is not None:
        train = texts["train"] = _one_answer_each(train)
    if tokenizer is None:
        if train is None:
            raise UserError(
                f"data.dataset = {config.dataset!r}: expected a training split, from which the "
                f"tokenizer is made; found {', '.join(k for k, v in texts.items() if v) or 'none'}"
            )
        tokenizer = train_tokenizer(config, train.sources, [r[0] for r in train.references])
        log(f"tokenizer: {tokenizer.kind}, {tokenizer.vocab_size} ids")
    tokenised = {
        name: _tokenise(name, pairs, config, tokenizer, log) if pairs else None
        for name, pairs in texts.items()
    }
    return Data(tokenizer, *(tokenised.get(name) for name in SPLITS))


def _one_answer_each(pairs: Pairs) -> Pairs:
    if all(len(answers) == 1 for answers in pairs.references):
        return pairs
    rows = [
        (source, [answer])
        for source, answers in zip(pairs.sources, pairs.references, strict=True)
        for answer in answers
    ]
    return Pairs([source for source, _ in rows], [answers for _, answers in rows])


def _tokenise(
    name: SplitName, pairs: Pairs, config: DataConfig, tokenizer: Tokenizer, log: Log
) -> Split:
    limit = config.max_length if name == "train" else None
    targets = [answers[0] for answers in pairs.references]
    key = fingerprint(pairs.sources, targets, tokenizer, limit)
    directory = sources.data_directory(config) / "tokens"
    store = open_or_build(directory, key, pairs.sources, targets, tokenizer, limit)
    dropped = len(pairs) - len(store)
    if dropped:
        log(f"{dropped} of {len(pairs)} training pairs longer than {limit} tokens left out")
    if not len(store):
        raise UserError(f"data.max_length = {limit}: every training pair is longer")
    kept = store.rows.tolist()
    return Split(
        [pairs.sources[i] for i in kept] if dropped else pairs.sources,
        [pairs.references[i] for i in kept] if dropped else pairs.references,
        store,
        key,
    )
