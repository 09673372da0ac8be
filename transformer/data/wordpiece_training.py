"""WordPiece vocabularies learnt from text (Devlin et al. 2019; Schuster and Nakajima 2012)."""

from collections import Counter
from collections.abc import Sequence

from transformer.config import DataConfig
from transformer.data.pretrained_tokenizer import PretrainedTokenizer, find_special
from transformer.data.wordpiece import CONTROLS, wordpiece_json
from transformer.errors import UserError

# Characters that get ids of their own are the most frequent ones: so many, or if it is more this
# part of the vocabulary, once as a word's beginning and once as its inside.
_CHARACTERS, _SHARE = 1000, 6


def train_wordpiece(texts: Sequence[str], config: DataConfig) -> PretrainedTokenizer:
    """Learns a vocabulary of exactly `config.vocab_size` pieces, specials included.

    Words are split as by BERT's published tokenizer: its cased one, or with
    ``config.normalization = "nfkc_cf"`` its uncased one, which lower-cases and strips accents. The
    same texts give the same vocabulary.

    Raises:
        UserError: `tokenizers` is not installed; or the size is impossible with these texts, for
            which the message gives the bound.
    """
    try:
        import tokenizers
    except ImportError as error:
        raise UserError(
            "data.tokenizer = 'wordpiece': the package tokenizers is missing: "
            'pip install "transformer[hf]"'
        ) from error
    settings = {"do_lower_case": config.normalization == "nfkc_cf"}
    specials = list(CONTROLS.values())
    blank = tokenizers.Tokenizer.from_str(wordpiece_json(specials, settings))
    characters = _characters(texts, blank.normalizer, config.vocab_size)
    # The library numbers the characters inside words in the order of a hash table, another one in
    # each process, and breaks ties by these numbers. As "special" ones they have their place.
    inside = [f"##{character}" for character in characters]
    fewest = len(specials) + 2 * len(characters)
    if config.vocab_size < fewest:
        raise UserError(
            f"data.vocab_size = {config.vocab_size}: expected at least {fewest} (specials, and the "
            "text's characters within words and at their beginning)"
        )
    trainer = tokenizers.trainers.WordPieceTrainer(
        vocab_size=config.vocab_size,
        special_tokens=specials + inside,
        initial_alphabet=characters,
        limit_alphabet=len(characters),
        show_progress=False,
    )
    learner = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token=CONTROLS["unk_token"]))
    learner.normalizer, learner.pre_tokenizer = blank.normalizer, blank.pre_tokenizer
    learner.train_from_iterator(texts, trainer)
    ids = learner.get_vocab(with_added_tokens=True)
    if len(ids) < config.vocab_size:
        raise UserError(
            f"data.vocab_size = {config.vocab_size}: the training text supports at most {len(ids)} "
            "pieces"
        )
    text = wordpiece_json(sorted(ids, key=ids.__getitem__), settings)
    return PretrainedTokenizer(text, find_special({}, settings, ids.get, len(ids)), settings)


def _characters(texts: Sequence[str], normalizer, vocab_size: int) -> list[str]:
    """The most frequent characters of normalised texts; of equally frequent ones the lower."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    found: Counter[str] = Counter()
    for character, count in counts.items():
        for normal in normalizer.normalize_str(character):
            if not normal.isspace():
                found[normal] += count
    order = sorted(found, key=lambda character: (-found[character], character))
    return sorted(order[: max(_CHARACTERS, vocab_size // _SHARE)])
