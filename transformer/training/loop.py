"""Training from a configuration to a checkpoint, and on from there."""

import math
import signal
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh
from rich.console import Console

from transformer.config import Config, from_dict, to_dict
from transformer.data.batches import Batch, prefetch
from transformer.data.choices import ChoiceSplit
from transformer.data.classification import ClassSplit
from transformer.data.objectives import training_batches
from transformer.data.pipeline import Data, prepare
from transformer.data.tokenizer import Tokenizer
from transformer.data.windows import SpanSplit
from transformer.errors import UserError
from transformer.host_memory import keep_freed_memory
from transformer.models.build import build_model
from transformer.models.stacking import with_layers
from transformer.parallel.mesh import describe, make_mesh
from transformer.parallel.sharding import sharing
from transformer.training.checkpoint import last_intact, require_same_shapes
from transformer.training.evaluation import make_evaluator
from transformer.training.fill import with_data, with_steps
from transformer.training.flops import step_flops, utilization
from transformer.training.logging import ConsoleReport, MetricsLog, read_metrics
from transformer.training.meta import Meta
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.resume import require_same_run, resumed_state
from transformer.training.saving import Checkpoints, set_aside
from transformer.training.signals import Interrupted, StopRequest
from transformer.training.start import adapted, load_start, with_model
from transformer.training.state import TrainState, fresh_state, state_shapes
from transformer.training.step import StepMetrics, make_train_step


class NonFiniteLoss(UserError):
    """The loss or its gradient became infinite or not a number: training cannot go on."""

    exit_code = 1


@dataclass(frozen=True)
class TrainResult:
    """How a call of `train` ended."""

    workdir: Path
    step: int
    """Optimizer steps done in all."""
    steps: int
    """Optimizer steps asked for (``train.steps``)."""
    validation: dict[str, float] | None
    """Metrics on the validation split after the last step, if it was evaluated then."""
    signal: int | None = None
    """The signal that stopped training early."""

    @property
    def exit_code(self) -> int:
        """0, or by the shell's convention 128 + the signal (130 for Ctrl-C, 143 for SIGTERM)."""
        return 0 if self.signal is None else 128 + self.signal

    @property
    def history(self) -> list[dict[str, Any]]:
        """All metrics logged so far: `read_metrics`."""
        return read_metrics(self.workdir)


def train(config: Config, workdir: str | Path, console: Console | None = None) -> TrainResult:
    """Trains a model, or goes on from the last checkpoint in ``workdir`` that is not damaged.

    A run that was stopped, at whatever moment, and called again ends in the same
    parameters, bit for bit on CPU, as one that was not. ``train.steps`` may grow. A
    checkpoint that cannot be saved, as on a full disk, is reported and training goes on.

    Raises:
        UserError: a setting or the data is not what the run in ``workdir`` began with, or
            cannot be used.
        NonFiniteLoss: names the step, the examples of its batch and the last checkpoint.
        SaveFailed: the first or the last checkpoint could not be saved.
    """
    keep_freed_memory()
    workdir, console = Path(workdir), console or Console()
    config = with_model(config, workdir)
    mesh = make_mesh(config.mesh)  # before the data is read, which may take long

    def say(text: str) -> None:
        console.print(text, highlight=False, markup=False, soft_wrap=True)

    saved = last_intact(workdir / "checkpoints", lambda text: say(f"warning: {text}"))
    tokenizer = start = None
    if saved is not None:
        for note in require_same_run(from_dict(saved.config), config, workdir):
            say(note)
        # With epochs only the data tells how many steps there are.
        if config.train.epochs is None and (done := _completed(saved, config, workdir, say)):
            return done
        tokenizer = Tokenizer.from_json(saved.tokenizer)
    elif (start := load_start(config)) is not None:
        say(f"starting from step {start.step} of {config.train.init_from}")
        tokenizer = Tokenizer.from_json(start.tokenizer)
    decoder = config.model.architecture == "decoder"
    data = prepare(config.data, tokenizer, ("train", "validation"), say, decoder)
    run = _Run(config, data, mesh, workdir, console)
    counted = config.train.epochs is not None
    if saved is not None and counted and (done := _completed(saved, run.config, workdir, say)):
        return done
    if start is not None:
        run.start_from(start.params)
    # Not before: it makes a directory, and a thread that outlives an early error.
    if saved is not None:
        set_aside(workdir / "checkpoints", after=saved.step)
    kept = config.train.keep, config.train.keep_best, config.train.keep_every
    with Checkpoints(workdir / "checkpoints", *kept, say=say) as checkpoints:
        return run(saved, checkpoints)


def _completed(
    saved: Meta, config: Config, workdir: Path, say: Callable[[str], None]
) -> TrainResult | None:
    """The result of a run that was complete before, unless an evaluation is still owed."""
    steps = config.train.steps
    if saved.step < steps:
        return None
    more = "train.steps" if config.train.epochs is None else "train.epochs"
    say(f"{workdir}: already complete at step {saved.step}; to train on, give a larger {more}")
    owed = saved.validation is None
    return None if owed else TrainResult(workdir, saved.step, steps, saved.validation)


class _Run:
    """One call of `train`, once the data is there."""

    def __init__(
        self,
        config: Config,
        data: Data,
        mesh: Mesh,
        workdir: Path,
        console: Console,
    ):
        assert data.train is not None  # `prepare` refuses a data set without
        config = with_data(config, data.tokenizer, data.train)
        self.workdir, self.console = workdir, console
        self.tokenizer = data.tokenizer.to_json()
        self.fingerprint = data.train.fingerprint
        self.batches = training_batches(
            data.train,
            config.data,
            data.tokenizer,
            config.train.seed,
            config.train.accumulate,
        )
        self.config = config = with_steps(config, self.batches.steps_per_epoch)
        self.model = build_model(config.model)
        schedule = make_schedule(config.optimizer, config.model.model_dim, config.train.steps)
        self.optimizer = make_optimizer(config.optimizer, schedule)
        self.sharding = sharing(mesh)
        self.step = make_train_step(
            self.model,
            self.optimizer,
            schedule,
            config.train.label_smoothing,
            config.train.seed,
            config.train.accumulate,
            config.train.lm_weight,
            self.sharding,
        )
        self.evaluate = (
            make_evaluator(config, self.model, data.tokenizer, data.validation, self.sharding)
            if data.validation is not None
            else None
        )
        by_row = isinstance(data.train, ClassSplit | ChoiceSplit | SpanSplit)
        self.unit = "examples" if by_row else "tokens"
        self.devices = mesh.devices.flatten()
        self.pending: deque[tuple[int, Batch, StepMetrics]] = deque()
        self.interval: dict[str, float] = {}
        self.params: Any = None
        self.compiled: set[tuple[tuple[int, ...], ...]] = set()

    def __call__(self, saved: Meta | None, checkpoints: Checkpoints) -> TrainResult:
        self.checkpoints = checkpoints
        settings, start = self.config.train, 0
        state = self._start() if saved is None else self._restored(saved)
        if saved is not None:
            start, self.interval = saved.step, dict(saved.interval or {})
        with (
            ConsoleReport(self.console, start, settings.steps, self.unit) as self.report,
            MetricsLog(self.workdir, start, self.report.line) as self.log,
            StopRequest() as stop,
        ):
            self._introduce(state, start)
            self.logged_at = self.report.clock() - self.interval.pop("seconds", 0.0)
            step, validation = start, saved and saved.validation
            if saved is None:
                # So that a crash at any moment finds one, and the untrained model can be tested.
                self._save(0, state, None)
            elif start and validation is None and self._due(start):
                validation = self._evaluate(start, state, stop)
                if validation is not None:
                    self.checkpoints.add_validation(start, validation)
            end = settings.steps if stop.signal is None else start
            for index, batch in prefetch(self.batches, start, end):
                step = index + 1
                with self._compiling(batch):
                    state, metrics = self.step(state, batch)
                self.pending.append((step, batch, metrics))
                # The metrics of one step are fetched while the next one runs.
                self._check(waiting=1)
                evaluate = self._due(step)
                if evaluate or step % settings.save_every == 0 or stop.signal is not None:
                    self._check(waiting=0)
                    validation = self._evaluate(step, state, stop) if evaluate else None
                    self._save(step, state, validation)
                    # Asked only here: a signal that comes between two saves waits for one.
                    if stop.signal is not None:
                        break
            self.checkpoints.require_saved(step)
        if stop.signal is not None:
            name = signal.Signals(stop.signal).name
            self.report.line(
                f"{name}: stopped after step {step} of {settings.steps} and saved in "
                f"{self.workdir}; the same command goes on from there"
            )
        return TrainResult(self.workdir, step, settings.steps, validation, stop.signal)

    def _due(self, step: int) -> bool:
        """Whether the validation split is evaluated after this step."""
        return step == self.config.train.steps or step % self.config.train.eval_every == 0

    def start_from(self, params: Any) -> None:
        """Starts from these parameters instead of random ones.

        Raises:
            UserError: the model has other ones; lists each path with both shapes.
        """
        params = with_layers(params, self.config.model.scan_layers)
        wanted = state_shapes(self.model, self.optimizer, self.sharding).params
        fitted = jax.eval_shape(adapted, params, wanted)
        require_same_shapes(fitted, wanted, Path(str(self.config.train.init_from)))
        self.params = params

    def _start(self) -> TrainState:
        seed = self.config.train.seed
        state = fresh_state(self.model, self.optimizer, seed, self.sharding)
        params, self.params = self.params, None
        if params is None:
            return state
        fitted = adapted(params, state.params)
        places = jax.tree.map(lambda x: x.sharding, state.params)
        return state.replace(params=jax.device_put(fitted, places))

    def _restored(self, saved: Meta) -> TrainState:
        if saved.fingerprint != self.fingerprint:
            raise UserError(
                f"data.train: its tokens differ from those the run in {self.workdir} began with "
                f"(fingerprint {self.fingerprint}, expected {saved.fingerprint})"
            )
        checkpoint, before = self.checkpoints.path(saved.step), from_dict(saved.config)
        return resumed_state(checkpoint, before, self.model, self.optimizer, self.sharding)

    def _compiling(self, batch: Batch) -> AbstractContextManager[None]:
        """Keeps compiling, once a shape, out of the speed and the time left."""
        shape = tuple(batch[name].shape for name in sorted(batch))
        if shape in self.compiled:
            return nullcontext()
        self.compiled.add(shape)
        return self.report.paused("compiling")

    def _introduce(self, state: TrainState, start: int) -> None:
        count = sum(leaf.size for leaf in jax.tree.leaves(state.params))
        self.report.line(f"{count:,} parameters; {self.batches.summary}")
        if self.sharding is not None:
            self.report.line(describe(self.sharding.mesh))
        if start:
            self.report.line(f"going on from step {start} in {self.workdir}")

    def _check(self, waiting: int) -> None:
        """Logs finished steps until only ``waiting`` are left; raises at the first bad one."""
        while len(self.pending) > waiting:
            step, batch, metrics = self.pending.popleft()
            sums, grad_norm, rate = jax.device_get(metrics)
            if not (math.isfinite(sums.loss) and math.isfinite(grad_norm)):
                last = self.checkpoints.last
                path = "none" if last is None else self.checkpoints.path(last)
                ids = batch["ids"][batch["ids"] >= 0]
                raise NonFiniteLoss(
                    f"step {step}: loss {sums.loss / sums.weight:.4g}, gradient norm "
                    f"{grad_norm:.4g}; training examples {', '.join(map(str, ids))} "
                    f"(the first: {self.batches.example(ids[0])!r}); last good checkpoint: {path}"
                )
            for name, value in {**sums._asdict(), "flops": step_flops(self.config, batch)}.items():
                self.interval[name] = self.interval.get(name, 0.0) + float(value)
            self.report.advance(step, sums.loss / sums.weight, float(rate), float(sums.weight))
            if step % self.config.train.log_every == 0 or step == self.config.train.steps:
                self._log_interval(step, float(grad_norm), float(rate))

    def _log_interval(self, step: int, grad_norm: float, learning_rate: float) -> None:
        sums, self.interval = self.interval, {}
        seconds, self.logged_at = self.report.clock() - self.logged_at, self.report.clock()
        values = {
            "loss": sums["loss"] / sums["weight"],
            "nll": sums["nll"] / sums["weight"],
            self.unit: sums["weight"],
            "grad_norm": grad_norm,
            "learning_rate": learning_rate,
            f"{self.unit}_per_second": sums["weight"] / seconds,
            **utilization(sums["flops"] / seconds, self.devices),
        }
        if self.config.model.next_sentence and not self.config.train.label_smoothing:
            # What the loss has besides that of the hidden tokens (see `loss_sums`).
            values["next_sentence_nll"] = values["loss"] - values["nll"]
        self.log.write(step, "train", values)
        self.report.logged(step)
        self.checkpoints.poll()

    def _evaluate(self, step: int, state: TrainState, stop: StopRequest) -> dict[str, float] | None:
        if self.evaluate is None:
            return None
        try:
            with self.report.paused("evaluating"), stop.interrupting():
                values = self.evaluate(state.params)
        except Interrupted:
            return None
        self.log.write(step, "validation", values)
        shown = "  ".join(f"{name} {value:.4f}" for name, value in values.items())
        self.report.line(f"validation after step {step}: {shown}")
        return values

    def _save(self, step: int, state: TrainState, validation: dict[str, float] | None) -> None:
        meta = Meta(
            step,
            to_dict(self.config),
            self.tokenizer,
            self.fingerprint,
            validation,
            {**self.interval, "seconds": self.report.clock() - self.logged_at},
        )
        with self.report.paused("saving"):
            self.checkpoints.save(state, meta)
