"""Training from a configuration to a checkpoint, and on from there."""

import math
import signal
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
from jax.sharding import Mesh
from rich.console import Console

from transformer.config import Config, HostsConfig, from_dict, to_dict
from transformer.data.batches import ALL, Batch, Rows, prefetch
from transformer.data.choices import ChoiceSplit
from transformer.data.classification import ClassSplit
from transformer.data.objectives import training_batches
from transformer.data.pipeline import Data
from transformer.data.tokenizer import Tokenizer
from transformer.data.windows import SpanSplit
from transformer.host_memory import keep_freed_memory
from transformer.models.stacking import with_layers
from transformer.parallel import hosts
from transformer.parallel.mesh import describe, make_mesh
from transformer.parallel.sharding import copied, sharing, spread
from transformer.training.beginning import last_saved, read_data
from transformer.training.checkpoint import require_same_shapes
from transformer.training.evaluation import make_evaluator
from transformer.training.fill import with_data, with_steps
from transformer.training.flops import step_flops, utilization
from transformer.training.logging import ConsoleReport, MetricsLog
from transformer.training.meta import Meta
from transformer.training.result import NonFiniteLoss, TrainResult, completed
from transformer.training.resume import require_same_data, require_same_run, resumed_state
from transformer.training.saving import Checkpoints, set_aside
from transformer.training.signals import Interrupted, StopRequest
from transformer.training.start import adapted, load_start, with_model
from transformer.training.state import TrainState, fresh_state, state_shapes
from transformer.training.step import StepMetrics, make_training


def train(config: Config, workdir: str | Path, console: Console | None = None) -> TrainResult:
    """Trains a model, or goes on from the last checkpoint in ``workdir`` that is not damaged.

    A run that was stopped, at whatever moment, and called again ends in the same
    parameters, bit for bit on CPU, as one that was not. ``train.steps`` may grow. A
    checkpoint that cannot be saved, as on a full disk, is reported and training goes on.

    With ``config.hosts`` (see `hosts.connect`) other processes call this too, and the work is
    shared with them. Then JAX must not have been used before.

    Raises:
        UserError: a setting or the data is not what the run in ``workdir`` began with, or
            cannot be used.
        NonFiniteLoss: names the step, the examples of its batch and the last checkpoint.
        SaveFailed: the first or the last checkpoint could not be saved.
        LostHost: another process is gone.
    """
    keep_freed_memory()
    hosts.connect(config.hosts)
    workdir = Path(workdir)
    console = console or Console() if hosts.first() else Console(quiet=True)
    with hosts.losing(lambda: f"the same command goes on from the last checkpoint in {workdir}"):
        return _train(replace(config, hosts=HostsConfig()), workdir, console)


def _train(config: Config, workdir: Path, console: Console) -> TrainResult:
    with hosts.together():
        config = with_model(config, workdir)
        mesh = make_mesh(config.mesh)  # before the data is read, which may take long

    say = partial(console.print, highlight=False, markup=False, soft_wrap=True)
    saved = last_saved(workdir, say)
    tokenizer = None
    if saved is not None:
        with hosts.together():
            for note in require_same_run(from_dict(saved.config), config, workdir):
                say(note)
        # With epochs only the data tells how many steps there are.
        if config.train.epochs is None and (done := completed(saved, config, workdir, say)):
            return done
        tokenizer = Tokenizer.from_json(saved.tokenizer)
    with hosts.together():
        start = load_start(config) if saved is None else None
    if start is not None:
        say(f"starting from step {start.step} of {config.train.init_from}")
        tokenizer = Tokenizer.from_json(start.tokenizer)
    data = read_data(config, tokenizer, say)
    with hosts.together():
        run = _Run(config, data, mesh, workdir, console)
        if start is not None:
            run.start_from(start.params)
        if saved is not None:
            require_same_data(saved.fingerprint, run.fingerprint, workdir)
    counted = config.train.epochs is not None
    if saved is not None and counted and (done := completed(saved, run.config, workdir, say)):
        return done
    # Not before: it makes a directory, and a thread that outlives an early error.
    with hosts.together():
        if saved is not None and hosts.first():
            set_aside(workdir / "checkpoints", after=saved.step)
        kept = config.train.keep, config.train.keep_best, config.train.keep_every
        checkpoints = Checkpoints(workdir / "checkpoints", *kept, say=say)
    with checkpoints:
        return run(saved, checkpoints)


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
        self.sharding = sharing(mesh)
        self.model, self.optimizer, self.step = make_training(config, self.sharding)
        self.votes = hosts.Votes() if hosts.several() else None
        self.voted = 0  # the signal that they were last told of
        self.evaluate = (
            make_evaluator(config, self.model, data.tokenizer, data.validation, self.sharding)
            if data.validation is not None
            else None
        )
        by_row = isinstance(data.train, ClassSplit | ChoiceSplit | SpanSplit)
        self.unit = "examples" if by_row else "tokens"
        self.devices = list(mesh.devices.flat)
        self.pending: deque[tuple[int, Batch, StepMetrics, Any]] = deque()
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
            self._log(start) as self.log,
            StopRequest(at_once=self.votes is None) as stop,
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
            end = settings.steps if stop.signal is None or self.votes else start
            for index, batch in prefetch(self.batches, start, end, rows=self._rows):
                step = index + 1
                with self._compiling(batch):
                    state, metrics = self.step(state, batch)
                vote = self.votes(stop.signal or 0) if self.votes else 0
                self.pending.append((step, batch, metrics, vote))
                # The metrics of one step are fetched while the next one runs.
                self._check(waiting=1)
                evaluate = self._due(step)
                if evaluate or step % settings.save_every == 0 or self._stopped(stop):
                    self._check(waiting=0)
                    validation = self._evaluate(step, state, stop) if evaluate else None
                    self._save(step, state, validation)
                    # Asked only here: a signal that comes between two saves waits for one.
                    if self._stopped(stop):
                        break
            self.checkpoints.require_saved(step)
        if stopped := self._stopped(stop):
            name = signal.Signals(stopped).name
            self.report.line(
                f"{name}: stopped after step {step} of {settings.steps} and saved in "
                f"{self.workdir}; the same command goes on from there"
            )
        return TrainResult(self.workdir, step, settings.steps, validation, stopped)

    def _stopped(self, stop: StopRequest) -> int | None:
        """The signal that asks to stop; of several hosts the one that all were told of."""
        return stop.signal if self.votes is None else int(self.voted) or None

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
        fitted = adapted(params, copied(state.params))
        places = jax.tree.map(lambda x: x.sharding, state.params)
        return state.replace(params=spread(fitted, places))

    def _restored(self, saved: Meta) -> TrainState:
        checkpoint, before = self.checkpoints.path(saved.step), from_dict(saved.config)
        return resumed_state(checkpoint, before, self.model, self.optimizer, self.sharding)

    def _compiling(self, batch: Batch) -> AbstractContextManager[None]:
        """Keeps compiling, once a shape, out of the speed and the time left."""
        shape = tuple(batch[name].shape for name in sorted(batch))
        if shape in self.compiled:
            return nullcontext()
        self.compiled.add(shape)
        return self.report.paused("compiling")

    def _rows(self, count: int) -> Rows:
        """Of a step's batch those that this host needs."""
        accumulate = self.config.train.accumulate
        return ALL if self.sharding is None else self.sharding.rows(count, accumulate)

    def _log(self, start: int) -> AbstractContextManager[MetricsLog | None]:
        """The one that host 0 writes."""
        if not hosts.first():
            return nullcontext()
        return MetricsLog(self.workdir, start, self.report.line)

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
            step, batch, metrics, vote = self.pending.popleft()
            (sums, grad_norm, rate), self.voted = jax.device_get((metrics, vote))
            if not (math.isfinite(sums.loss) and math.isfinite(grad_norm)):
                last = self.checkpoints.last
                path = "none" if last is None else self.checkpoints.path(last)
                ids = batch["ids"][batch["ids"] >= 0]
                raise NonFiniteLoss(
                    f"step {step}: loss {sums.loss / sums.weight:.4g}, gradient norm "
                    f"{grad_norm:.4g}; training examples {', '.join(map(str, ids))} "
                    f"(the first: {self.batches.example(ids[0])!r}); last good checkpoint: {path}"
                )
            share = len(batch["inputs"]) / len(batch["ids"]) or 1  # that this host has
            flops = step_flops(self.config, batch) / share
            for name, value in {**sums._asdict(), "flops": flops}.items():
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
        if self.log:
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
        if self.log:
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
