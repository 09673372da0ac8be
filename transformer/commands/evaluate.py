"""``transformer evaluate``."""

import dataclasses
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from transformer.commands.base import OnCheckpoint, require_folder, trained_config, warn_cut
from transformer.commands.predictions import write_by_id, write_classes, write_words
from transformer.config import DataConfig, DecodeConfig, head_of
from transformer.data.choices import ChoiceSplit
from transformer.data.classification import ClassSplit
from transformer.data.pipeline import PairSplit, prepare
from transformer.data.sentences import SentenceSplit
from transformer.data.symbols import Symbols
from transformer.data.text import TextSplit
from transformer.data.token_labels import TokenSplit
from transformer.data.tokenizer import UNK, Tokenizer
from transformer.data.windows import SpanSplit
from transformer.decoding.translate import Translator
from transformer.errors import UserError
from transformer.functional.losses import LossSums
from transformer.models.build import Model
from transformer.models.decoder import Decoder
from transformer.models.encoder import Encoder
from transformer.models.seq2seq import Seq2Seq
from transformer.training.answers import AnswerEvaluator, describe_answers
from transformer.training.choices import ChoiceEvaluator, describe_choices
from transformer.training.classification import (
    ClassEvaluator,
    describe_classes,
    describe_values,
)
from transformer.training.evaluation import Evaluator, evenly_spread
from transformer.training.masked import MaskedEvaluator, describe_masked
from transformer.training.metrics import describe, scored_by_errors
from transformer.training.spans import SpanEvaluator, describe_spans
from transformer.training.token_labels import TokenEvaluator, describe_words

_Labelled = ClassSplit | TokenSplit | ChoiceSplit


@dataclass(frozen=True)
class Evaluate(OnCheckpoint):
    """Score a trained model on held-out data, by what suits its objective.

    BLEU and chrF, error rates, perplexity, accuracy, exact match and F1 of answers.
    """

    split: Literal["train", "validation", "test"] | None = None
    """Which part of the data; None: test, or where there is none validation."""
    examples: int | None = None
    """Examples scored, evenly spread over the split; None: all."""
    draws: int | None = None
    """With data.objective = masked_language_model: hide tokens, and pair texts, so many times
    anew; None: once."""
    table: int = 0
    """Show this many examples with prediction and reference."""
    predictions: Path | None = None
    """Write the predictions there, one line an example, in the order of the split (of words WORD
    TAB LABEL, a blank line after a sentence); a .jsonl has them with probabilities. With
    data.objective = spans: one JSON object from the questions' ids to answers, as SQuAD's
    evaluation reads it."""
    null_odds: Path | None = None
    """With data.objective = spans: write there how much the score of no answer exceeds that of the
    best answer, by the questions' ids, as SQuAD 2.0's evaluation reads it."""
    null_threshold: float | None = None
    """With data.objective = spans: give no answer where that is more than this; None: 0 if there
    are questions without an answer, else answer all."""
    data: DataConfig = dataclasses.field(default_factory=DataConfig)
    decode: DecodeConfig = dataclasses.field(default_factory=DecodeConfig)

    @classmethod
    def defaults(cls, checkpoint: str | None = None, step: str = "best") -> "Evaluate":
        trained = trained_config(checkpoint, step)
        return cls(data=trained.data, decode=trained.decode)

    def run(self) -> int:
        console = Console()
        if self.draws is not None and self.draws < 1:
            raise UserError(f"--draws {self.draws}: expected at least 1")
        for option in ("predictions", "null_odds"):
            if (path := getattr(self, option)) is not None:
                require_folder(f"--{option.replace('_', '-')}", path)
        model, params, tokenizer, config = self.load_any()
        self._check_labels(config.data.labels)
        self._check_head(model)
        if not isinstance(model, Seq2Seq) and self.decode != config.decode:
            raise UserError(
                f"--decode: expected none, because model.architecture = "
                f"{model.config.architecture!r}"
            )
        config = replace(config, data=self.data)  # finds what the network cannot learn
        asked = (self.split,) if self.split else ("validation", "test")
        decoder = config.model.architecture == "decoder"
        data = prepare(self.data, tokenizer, asked, console.print, decoder)
        split = (data.train if self.split == "train" else data.test) or data.validation
        if split is None or (self.split and getattr(data, self.split) is None):
            raise UserError(f"--split {' or '.join(asked)}: {self.data.origin} has none")
        if self.data.objective != "spans":
            self._refuse("null_odds", "null_threshold")
        if not isinstance(split, SentenceSplit):
            self._refuse("draws")
        if isinstance(split, SpanSplit):
            lines = self._answer(model, params, tokenizer, split)
        elif isinstance(split, _Labelled):
            lines = self._label(model, params, tokenizer, split)
        elif isinstance(split, SentenceSplit):
            self._refuse("examples", "table", "predictions")
            assert isinstance(model, Encoder)
            draws = 1 if self.draws is None else self.draws
            masked = MaskedEvaluator(config, model, tokenizer, split, draws)
            sums = masked.sums(params)
            lines = describe_masked(sums, masked.means(sums))
        elif isinstance(split, TextSplit):
            self._refuse("examples", "table", "predictions")
            evaluator = Evaluator(config, model, tokenizer, split, self.sharding)
            lines = self._losses(evaluator.sums(params), tokenizer, split)
        elif isinstance(model, Seq2Seq):
            lines = self._translate(model, params, tokenizer, split, console)
        else:
            assert isinstance(model, Decoder)
            self._refuse("examples", "table", "predictions")
            scores = AnswerEvaluator(config, model, tokenizer, split)(params)
            lines = describe_answers(scores, len(split))
        for line in lines:
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        return 0

    def _translate(
        self, model: Seq2Seq, params: Any, tokenizer: Tokenizer, split: PairSplit, console: Console
    ) -> list[str]:
        """Outputs, shown and written as asked for; their scores."""
        count = len(split) if self.examples is None else min(self.examples, len(split))
        if count < 1:
            raise UserError(f"--examples {self.examples}: expected at least 1")
        chosen = evenly_spread(count, len(split))
        sources = [split.sources[i] for i in chosen]
        references = [split.references[i] for i in chosen]
        translator = Translator(model, params, tokenizer, self.decode)
        with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
            task = bar.add_task("decoding", total=count)
            found = translator.translate(
                sources,
                progress=lambda done, all: bar.update(task, completed=done, total=all),
                on_cut=lambda i, tokens: warn_cut(f"example {chosen[i]}", tokens, self.decode),
            )
        outputs = [best[0].text for best in found]
        if self.predictions is not None:
            self.predictions.write_text("".join(o + "\n" for o in outputs), encoding="utf-8")
        if self.table:
            console.print(_table(sources, outputs, references, self.table))
        return describe(scored_by_errors(self.data), outputs, references)

    def _check_labels(self, known: tuple[str, ...]) -> None:
        """In another order they would be names of other outputs."""
        given = self.data.labels
        fitting = len(given) == len(known) and not set(given) & set(known)
        if known and given != known and not fitting:
            raise UserError(
                f"data.labels = {given}: expected {known}, in the order of the model's outputs, or "
                "as many other names"
            )

    def _check_head(self, model: Model) -> None:
        """Whether the network has been trained for the objective."""
        objective, head = self.data.objective, head_of(self.data.objective)
        if model.config.head != head:
            raise UserError(
                f"--checkpoint {self.checkpoint}: the model has the head {model.config.head!r}; "
                f"expected {head!r}, because data.objective = {objective!r}"
            )

    def _check_scored(self, split: _Labelled | SpanSplit) -> None:
        """Whether there is something to do."""
        self._refuse("examples", "table")
        if not split.labelled and self.predictions is None:
            raise UserError("there are no labels to score by: expected --predictions FILE")

    def _answer(
        self, model: Model, params: Any, tokenizer: Tokenizer, split: SpanSplit
    ) -> list[str]:
        """The scores of answers, which are written as asked for."""
        self._check_scored(split)
        assert isinstance(model, Encoder)
        evaluator = SpanEvaluator(model, self.data, tokenizer, split)
        found = evaluator.find(params)
        if self.predictions is not None:
            write_by_id(self.predictions, evaluator.predictions(found, self.null_threshold))
        if self.null_odds is not None:
            write_by_id(self.null_odds, evaluator.null_odds(found))
        if not split.labelled:
            return [f"{len(split):,} without answers: predictions in {self.predictions}"]
        return describe_spans(evaluator.scores(found, self.null_threshold), len(split))

    def _label(
        self, model: Model, params: Any, tokenizer: Tokenizer, split: _Labelled
    ) -> list[str]:
        """The scores of classes, numbers, choices or labels of words, which are written as asked
        for."""
        self._check_scored(split)
        network: Any = model
        if isinstance(split, ClassSplit):
            evaluator = ClassEvaluator(network, self.data, tokenizer, split)
        elif isinstance(split, ChoiceSplit):
            evaluator = ChoiceEvaluator(network, self.data, tokenizer, split)
        else:
            evaluator = TokenEvaluator(network, self.data, tokenizer, split)
        outputs = evaluator.outputs(params)
        if self.predictions is not None and isinstance(split, TokenSplit):
            write_words(self.predictions, outputs, split)
        elif self.predictions is not None:
            write_classes(self.predictions, outputs, split.names)
        if not split.labelled:
            return [f"{len(split):,} without labels: predictions in {self.predictions}"]
        scores = evaluator.scores(outputs)
        if isinstance(split, TokenSplit):
            return describe_words(scores, len(split.labels))
        if isinstance(split, ChoiceSplit):
            return describe_choices(scores, len(split))
        return (describe_classes if split.names else describe_values)(scores, len(split))

    def _refuse(self, *options: str) -> None:
        """Options that this objective has no use for."""
        for name in options:
            if getattr(self, name) not in (None, 0):
                raise UserError(
                    f"--{name.replace('_', '-')} {getattr(self, name)}: not with data.objective = "
                    f"{self.data.objective!r}"
                )

    def _losses(self, sums: LossSums, tokenizer: Tokenizer, split: TextSplit) -> list[str]:
        """How well texts are predicted, every token of them counted once."""
        bits = float(sums.nll) / math.log(2)
        nll = float(sums.nll / sums.weight)
        whole = self.data.objective == "language_model"
        lines = [
            f"nll {nll:.4f} nats a token, perplexity {math.exp(nll):.4f} ({sums.weight:,.0f} tokens"
            f"{', each counted once' if whole else ' of targets'})"
        ]
        if whole:
            lines.append(
                f"{bits / split.characters:.4f} bits a character, {bits / split.bytes:.4f} bits a "
                f"byte ({split.characters:,} characters)"
            )
        unknown = (split.store.tokens == UNK).sum() if isinstance(tokenizer, Symbols) else 0
        if unknown:
            lines.append(f"{unknown:,} of the tokens stand for symbols unknown in training")
        return lines


def _table(sources, outputs, references, rows: int) -> Table:
    table = Table("source", "prediction", "reference", "", title="held-out examples")
    for i in evenly_spread(min(rows, len(sources)), len(sources)):
        right = outputs[i] in references[i]
        cells = sources[i], outputs[i], " | ".join(references[i]), "✓" if right else "✗"
        table.add_row(*map(Text, cells))  # as it is: "[b]" in a text is no markup
    return table
