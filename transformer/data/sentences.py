"""Texts as documents of sentences, which BERT is pre-trained on (Devlin et al. 2019, A.2)."""

import hashlib
import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from transformer.config import DataConfig
from transformer.data.sources import Log, SplitName, data_directory
from transformer.data.store import fingerprint, open_or_build_documents
from transformer.data.text import BLANK_LINES, read_documents
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError

Sentences = Literal["line", "prose"]

# The end of a sentence: its mark, closing quotes and brackets, and white space that no lower-case
# letter follows ("e.g. this" goes on).
_ENDS = re.compile(r"[.!?]+[\"'”’)\]]*(?=\s+[^\sa-z])")


def split_sentences(text: str, rule: Sentences) -> list[str]:
    """The sentences of a document, none of them blank.

    Args:
        text: the document.
        rule: line: every line is a sentence, as in the published program's input. prose:
            line breaks are spaces within a paragraph (between blank lines), which ends after
            ``.``, ``!`` or ``?`` where white space and no lower-case letter follow.

    >>> split_sentences("One, e.g. this\\none. Two!\\n\\nThree", "prose")
    ['One, e.g. this one.', 'Two!', 'Three']
    """
    if rule == "line":
        return [line.strip() for line in text.split("\n") if line.strip()]
    found = []
    for paragraph in BLANK_LINES.split(text):
        joined = " ".join(paragraph.split())
        ends = [match.end() for match in _ENDS.finditer(joined)]
        parts = itertools.pairwise([0, *ends, len(joined)])
        found += [part for a, b in parts if (part := joined[a:b].strip())]
    return found


@dataclass(frozen=True)
class SentenceSplit:
    """Documents of sentences, as tokens without begin and end. No sentence has no token.

    Attributes:
        words: int32, the tokens of all sentences one after the other.
        sentences: int64 [S + 1]; sentence i lies between offsets i and i + 1 of `words`.
        documents: int64 [D + 1]; document i has the sentences from number i to number i + 1.
        fingerprint: a hash of the texts, how they are divided, and the tokenizer.
    """

    words: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    fingerprint: str

    def __len__(self) -> int:
        return len(self.documents) - 1

    @property
    def tokens(self) -> tuple[np.ndarray, ...]:
        """Every token of the split, in some arrays."""
        return (self.words,)


def read_sentences(
    config: DataConfig, splits: Collection[SplitName], log: Log = print
) -> dict[SplitName, list[list[str]]]:
    """The sentences of each document of the splits that were asked for and exist.

    Raises:
        UserError: as `read_documents`.
    """
    return {
        name: [split_sentences(text, config.sentences) for text in documents]
        for name, documents in read_documents(config, splits, log).items()
    }


def tokenise_sentences(
    documents: Sequence[Sequence[str]],
    config: DataConfig,
    tokenizer: Tokenizer,
    name: SplitName,
    log: Log = print,
) -> SentenceSplit:
    """The tokens of some documents, made once and kept in the data directory.

    Args:
        documents: their sentences.
        config: what pairs are made of, and where tokens are kept.
        tokenizer: encodes the sentences.
        name: of the split, for messages.
        log: is warned of documents that have no pair of sentences that follow each other.

    Raises:
        UserError: no document has a token; or there is one document alone, and
            `config.next_sentence` needs another.
    """
    texts = [text for document in documents for text in document]
    plain = fingerprint(texts, [], tokenizer, None)
    key = hashlib.sha256(f"{plain} without ends".encode()).hexdigest()
    directory = data_directory(config) / "tokens"
    store = open_or_build_documents(directory, key, texts, tokenizer, ends=False)
    # Sentences, and then documents, without a token begin where the next ones do.
    firsts = np.cumsum([0, *map(len, documents)])
    sentences = np.unique(store.offsets)
    borders = np.unique(np.searchsorted(sentences, store.offsets[firsts]))
    if len(sentences) < 2:
        raise UserError(f"data.{name}: no document has a token")
    divided = hashlib.sha256(key.encode() + firsts.astype(np.int64).tobytes())
    split = SentenceSplit(store.tokens, sentences, borders, divided.hexdigest())
    empty = len(documents) - len(split)
    if empty:
        log(f"{name}: {empty:,} of {len(documents):,} documents have no token, left out")
    if config.next_sentence:
        _check_pairs(split, name, log)
    return split


def _check_pairs(split: SentenceSplit, name: SplitName, log: Log) -> None:
    count = len(split)
    if count < 2:
        raise UserError(
            f"data.{name}: found one document; expected two or more, as data.next_sentence draws "
            "second texts from another (data.documents = 'paragraph' takes blank lines as borders)"
        )
    alone = int((np.diff(split.documents) == 1).sum())
    if alone:
        log(
            f"warning: {name}: {alone:,} of {count:,} documents have one sentence, which no other "
            "follows: their second texts are always random (is there a blank line after every "
            "sentence? see data.documents and data.sentences)"
        )


def cut_long(
    sentences: np.ndarray, documents: np.ndarray, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """The offsets of a `SentenceSplit` after sentences of more than `most` tokens were cut.

    The pieces, all but the last of `most` tokens, are sentences of their own.
    """
    pieces = -(-np.diff(sentences) // most)
    before = np.concatenate([[0], np.cumsum(pieces)])
    number = np.arange(before[-1]) - np.repeat(before[:-1], pieces)
    starts = np.repeat(sentences[:-1], pieces) + most * number
    return np.append(starts, sentences[-1]), before[documents]


def runs(
    sentences: np.ndarray, documents: np.ndarray, target: int, paired: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Sentences in a row that become an example: the number of the first and of the last + 1.

    Each run takes up where the one before ended, and ends with its document.

    * Not `paired`: as many sentences as fit into `target` tokens (Liu et al. 2019, section 4.2:
      DOC-SENTENCES).
    * `paired`: sentences until there are `target` tokens or more, as in BERT's published program;
      but two sentences at least, for which the last run of a document may begin one sentence
      early. Documents of one sentence are a run of one.

    Args:
        sentences: as of `SentenceSplit`, each of at most `target` tokens.
        documents: likewise.
        target: tokens of a run.
        paired: see above.

    Returns:
        int64 [runs] each.
    """
    number = np.arange(documents[-1])
    which = np.searchsorted(documents, number, side="right") - 1
    begins, ends = documents[which], documents[which + 1]
    if paired:
        stops = np.searchsorted(sentences, sentences[:-1] + target, side="left")
        stops = np.minimum(np.maximum(stops, number + 2), ends)
    else:
        stops = np.searchsorted(sentences, sentences[:-1] + target, side="right") - 1
        stops = np.minimum(stops, ends)
    chain, at = [], 0
    while at < len(number):
        chain.append(at)
        at = int(stops[at])
    starts = np.array(chain)
    stops = stops[starts]
    if paired:
        lonely = (stops - starts == 1) & (starts > begins[starts])
        starts = starts - lonely
    return starts, stops
