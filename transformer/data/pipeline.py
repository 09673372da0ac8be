"""From settings to a tokenizer and tokenised splits."""

from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from itertools import chain

import numpy as np

from transformer.config import DataConfig
from transformer.data import sources
from transformer.data.choices import ChoiceSplit, read_choices, tokenise_choices
from transformer.data.classification import ClassSplit, tokenise_labelled
from transformer.data.composing import with_delimiters
from transformer.data.extended_tokenizer import with_mask, with_sentinels
from transformer.data.labelled import Labelled, class_names, read_labelled
from transformer.data.questions import read_questions
from transformer.data.sentences import SentenceSplit, read_sentences, tokenise_sentences
from transformer.data.sources import Log, Pairs, SplitName
from transformer.data.store import TokenStore, fingerprint, open_or_build
from transformer.data.text import TextSplit, read_documents, tokenise
from transformer.data.token_labels import (
    TokenSplit,
    Words,
    as_labelled,
    read_words,
    tokenise_words,
)
from transformer.data.tokenizer import Tokenizer, train_tokenizer
from transformer.data.windows import SpanSplit, make_windows
from transformer.errors import UserError

SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")


@dataclass(frozen=True)
class PairSplit:
    """Pairs: row i of every field belongs to the same example.

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


Split = PairSplit | TextSplit | SentenceSplit | ClassSplit | TokenSplit | ChoiceSplit | SpanSplit


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
    decoder: bool = False,
) -> Data:
    """Reads, tokenises and caches the splits of a data set: pairs, texts or labelled texts.

    A training source with several right answers becomes several training pairs.
    Training pairs longer than `config.max_length` tokens on either side are left
    out; validation and test stay whole. (Prompts with answers are left out of all splits if they
    have more tokens together, labelled texts are cut.) Objectives that need ids of their own
    extend the tokenizer.

    Args:
        config: the data's settings.
        tokenizer: used for text, e.g. a checkpoint's; None: made from the training split.
        splits: the splits to read.
        log: is told what was read, left out and kept.
        decoder: whether the network is one, which reads labelled texts with new ids around them
            (see `transformer.data.composing`).

    Raises:
        UserError: bad input or settings; see `sources.read` and `train_tokenizer`.
    """
    match config.objective:
        case "language_model" | "span_corruption":
            prepare_splits = _prepare_texts
        case "masked_language_model":
            prepare_splits = _prepare_sentences
        case "classification" | "regression":
            prepare_splits = partial(_prepare_labelled, decoder=decoder)
        case "token_labels":
            prepare_splits = _prepare_words
        case "multiple_choice":
            prepare_splits = _prepare_choices
        case "spans":
            prepare_splits = _prepare_questions
        case _:
            prepare_splits = _prepare_pairs
    tokenizer, tokenised = prepare_splits(config, tokenizer, splits, log)
    return Data(tokenizer, *(tokenised.get(name) for name in SPLITS))


_Prepared = tuple[Tokenizer, dict[SplitName, Split]]


def _prepare_texts(
    config: DataConfig, tokenizer: Tokenizer | None, splits: Collection[SplitName], log: Log
) -> _Prepared:
    texts = read_documents(config, splits, log)
    train = ([], texts["train"]) if "train" in texts else None
    tokenizer = tokenizer or _make_tokenizer(config, train, texts, log)
    if config.objective == "span_corruption":
        tokenizer, _ = with_sentinels(tokenizer)
    return tokenizer, {name: tokenise(texts[name], config, tokenizer) for name in texts}


def _prepare_sentences(
    config: DataConfig, tokenizer: Tokenizer | None, splits: Collection[SplitName], log: Log
) -> _Prepared:
    documents = read_sentences(config, splits, log)
    train = None
    if "train" in documents:
        train = [], [text for document in documents["train"] for text in document]
    tokenizer = with_mask(tokenizer or _make_tokenizer(config, train, documents, log))
    return tokenizer, {
        name: tokenise_sentences(part, config, tokenizer, name, log)
        for name, part in documents.items()
    }


def _prepare_pairs(
    config: DataConfig, tokenizer: Tokenizer | None, splits: Collection[SplitName], log: Log
) -> _Prepared:
    pairs: dict[SplitName, Pairs] = {}
    for name in SPLITS:
        if name in splits and (part := sources.read(config, name, log)) is not None:
            pairs[name] = part
    if config.objective == "answers":
        pairs = {name: _with_separator(part, config.separator) for name, part in pairs.items()}
    train = None
    if "train" in pairs:
        part = pairs["train"] = _one_answer_each(pairs["train"])
        answers = [answers[0] for answers in part.references]
        one_side = config.objective == "answers"
        train = ([], part.sources + answers) if one_side else (part.sources, answers)
    tokenizer = tokenizer or _make_tokenizer(config, train, pairs, log)
    return tokenizer, {
        name: _tokenise_pairs(name, part, config, tokenizer, log) for name, part in pairs.items()
    }


def _prepare_labelled(
    config: DataConfig,
    tokenizer: Tokenizer | None,
    splits: Collection[SplitName],
    log: Log,
    decoder: bool,
) -> _Prepared:
    found: dict[SplitName, Labelled] = {}
    for name in SPLITS:
        if name in splits and (part := read_labelled(config, name, log)) is not None:
            found[name] = part
    train = found.get("train")
    names = class_names(config.labels, train) if config.objective == "classification" else ()
    texts = ([], [*train.texts, *filter(None, train.seconds)]) if train else None
    tokenizer = tokenizer or _make_tokenizer(config, texts, found, log)
    if decoder:
        tokenizer = with_delimiters(tokenizer)
    return tokenizer, {
        name: tokenise_labelled(part, names, config, tokenizer, name, log)
        for name, part in found.items()
    }


def _prepare_words(
    config: DataConfig, tokenizer: Tokenizer | None, splits: Collection[SplitName], log: Log
) -> _Prepared:
    found: dict[SplitName, Words] = {
        name: read_words(paths, name, log)
        for name in SPLITS
        if name in splits and (paths := getattr(config, name))
    }
    train = found.get("train")
    names = class_names(config.labels, as_labelled(train) if train else None)
    tokenizer = tokenizer or _make_tokenizer(
        config, ([], train.words) if train else None, found, log
    )
    return tokenizer, {
        name: tokenise_words(part, names, config, tokenizer, name, log)
        for name, part in found.items()
    }


def _prepare_choices(
    config: DataConfig, tokenizer: Tokenizer | None, splits: Collection[SplitName], log: Log
) -> _Prepared:
    found = read_choices(config, splits, log)
    train = found.get("train")
    texts = ([], [*train.prompts, *chain(*train.endings)]) if train else None
    tokenizer = tokenizer or _make_tokenizer(config, texts, found, log)
    return tokenizer, {
        name: tokenise_choices(part, config, tokenizer, name, log) for name, part in found.items()
    }


def _prepare_questions(
    config: DataConfig, tokenizer: Tokenizer | None, splits: Collection[SplitName], log: Log
) -> _Prepared:
    found = read_questions(config, splits, log)
    train = found.get("train")
    texts = None
    if train:
        texts = [], [*train.contexts, *(question.text for question in train.questions)]
    tokenizer = tokenizer or _make_tokenizer(config, texts, found, log)
    return tokenizer, {
        name: make_windows(part, config, tokenizer, name, log) for name, part in found.items()
    }


def _with_separator(pairs: Pairs, separator: str) -> Pairs:
    return Pairs([source + separator for source in pairs.sources], pairs.references)


def _make_tokenizer(
    config: DataConfig,
    train: tuple[list[str], list[str]] | None,
    found: Collection[SplitName],
    log: Log,
) -> Tokenizer:
    """From the training split's sources and targets."""
    if train is None:
        raise UserError(
            f"data.dataset = {config.origin!r}: expected a training split, from which the "
            f"tokenizer is made; found {', '.join(found) or 'none'}"
        )
    tokenizer = train_tokenizer(config, *train)
    log(f"tokenizer: {tokenizer.kind}, {tokenizer.vocab_size} ids")
    return tokenizer


def _one_answer_each(pairs: Pairs) -> Pairs:
    if all(len(answers) == 1 for answers in pairs.references):
        return pairs
    rows = [
        (source, [answer])
        for source, answers in zip(pairs.sources, pairs.references, strict=True)
        for answer in answers
    ]
    return Pairs([source for source, _ in rows], [answers for _, answers in rows])


def _tokenise_pairs(
    name: SplitName, pairs: Pairs, config: DataConfig, tokenizer: Tokenizer, log: Log
) -> PairSplit:
    together = config.objective == "answers"
    limit = config.max_length if name == "train" or together else None
    targets = [answers[0] for answers in pairs.references]
    key = fingerprint(pairs.sources, targets, tokenizer, limit, together)
    directory = sources.data_directory(config) / "tokens"
    store = open_or_build(directory, key, pairs.sources, targets, tokenizer, limit, together)
    dropped = len(pairs) - len(store)
    if dropped:
        kind = f"{name} prompts with answers" if together else "training pairs"
        log(f"{dropped} of {len(pairs)} {kind} longer than {limit} tokens left out")
    if not len(store):
        what = f"prompt with its answer in {name}" if together else "training pair"
        raise UserError(f"data.max_length = {limit}: every {what} is longer")
    kept = store.rows.tolist()
    return PairSplit(
        [pairs.sources[i] for i in kept] if dropped else pairs.sources,
        [pairs.references[i] for i in kept] if dropped else pairs.references,
        store,
        key,
    )
