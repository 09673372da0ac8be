"""Whether a job fits a machine that is not at hand: the training step, compiled for it.

What is run here is the machine's compiler. So memory, collectives and kernels are those of the
real program; its time is not known, but for a bound that no machine could beat.
"""

import dataclasses
import math
import re
import time
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from transformer.config import Config
from transformer.data.largest import largest_batch, vocabulary
from transformer.errors import UserError
from transformer.parallel.hlo import Program, read_program
from transformer.parallel.mesh import describe, make_mesh
from transformer.parallel.sharding import Sharding
from transformer.parallel.topology import Target
from transformer.training.fill import with_head
from transformer.training.flops import count_flops, step_flops
from transformer.training.state import TrainState, state_shapes
from transformer.training.step import make_training

_GIB = 2**30


class DoesNotFit(UserError):
    """The compiler's figures of a step that needs more memory than a device has.

    Attributes:
        needed: bytes on each device.
    """

    exit_code = 3

    def __init__(self, message: str, needed: float) -> None:
        super().__init__(message)
        self.needed = needed


@dataclass(frozen=True)
class Plan:
    """What the compiler tells of a training step. Bytes are those of each device.

    Attributes:
        target: the machine.
        mesh: its devices as a grid, in words.
        batch: the shapes of what the network reads in a step, on all devices: inputs, and
            sources where there are some.
        parameters: bytes of the parameters.
        optimizer: bytes of the optimizer's state.
        temporaries: bytes of all else at most.
        peak: bytes at most.
        state: arrays of the state, all of which should be donated.
        replicated: arrays and bytes of parameters that lie whole on every device.
        program: what the compiled program holds.
        model_flops: of the model in a step, on all devices, by formula.
        program_flops: those of the program, by counting: what it computes twice too.
        seconds: that compiling took.
    """

    target: Target
    mesh: str
    batch: tuple[tuple[int, ...], ...]
    parameters: int
    optimizer: int
    temporaries: int
    peak: int
    state: int
    replicated: tuple[int, int]
    program: Program
    model_flops: int
    program_flops: int
    seconds: float

    @property
    def donated(self) -> bool:
        """Whether the whole state is: its memory becomes that of the next one."""
        return self.program.donated >= self.state

    @property
    def least_seconds(self) -> tuple[float, float]:
        """What computing at the peak rate takes, than which no step is faster, and what moving
        the bytes of this program over the links does (at full effort the compiler moves less)."""
        chip, devices = self.target.chip, len(self.target.devices)
        received = sum(c.received * c.times for c in self.program.collectives)
        return self.program_flops / devices / chip.flops, received / chip.links

    def __str__(self) -> str:
        chip, program = self.target.chip, self.program
        whole, whole_bytes = self.replicated
        share = self.program_flops / self.model_flops
        computing, moving = self.least_seconds
        mfu = self.model_flops / len(self.target.devices) / chip.flops / computing
        shapes = " and ".join(" x ".join(f"{n:,}" for n in shape) for shape in self.batch)
        tokens = sum(math.prod(shape) for shape in self.batch)
        lines = [
            f"{self.target.name}: {self.mesh}",
            f"batch          {shapes} = {tokens:,} tokens a step",
            "memory of each device, GiB",
            f"  parameters       {self.parameters / _GIB:8.3f}",
            f"  optimizer state  {self.optimizer / _GIB:8.3f}",
            f"  temporaries      {self.temporaries / _GIB:8.3f}",
            f"  peak             {self.peak / _GIB:8.3f} of {chip.memory / _GIB:.2f} usable",
            f"donated        {min(program.donated, self.state)} of the state's {self.state} arrays",
            f"in one piece   {whole} parameters, {whole_bytes / 1e6:,.2f} MB on every device",
            *self._collectives(),
            "kernels        "
            + (", ".join(f"{name} {n}" for name, n in program.kernels.items()) or "none"),
            f"FLOPs          {self.model_flops:.4g} of the model (formula); "
            f"{self.program_flops:.4g} counted in the program ({share:.3f})",
            f"lower bound of a step's time, not a measurement: {computing:.4g} s at the peak "
            f"rate; so mfu is below {min(mfu, 1):.2f}",
            f"links alone, at their full rate: {moving:.4g} s",
            f"compiled in {self.seconds:.0f} s",
        ]
        return "\n".join(lines)

    def _collectives(self) -> list[str]:
        lines = []
        for kind in sorted({c.kind for c in self.program.collectives}):
            of_kind = [c for c in self.program.collectives if c.kind == kind]
            largest = max(of_kind, key=lambda c: c.bytes)
            shape = " x ".join(map(str, largest.shape)) or "a number"
            times, size = sum(c.times for c in of_kind), sum(c.bytes * c.times for c in of_kind)
            lines.append(
                f"{kind:19}{times:6,} a step, {size / 1e9:8.3f} GB of results, "
                f"the largest {shape} ({largest.bytes / 1e6:,.1f} MB)"
            )
        return lines or ["collectives    none"]


def make_plan(config: Config, target: Target) -> Plan:
    """Compiles the training step of `config`, with its largest batch, for `target`.

    Raises:
        UserError: a setting does not fit the mesh, or the data alone can tell it.
        DoesNotFit: a device has too little memory.
    """
    config = filled(config)
    mesh = make_mesh(config.mesh, target.devices)
    sharding = Sharding(mesh)
    model, optimizer, step = make_training(config, sharding)
    state = state_shapes(model, optimizer, sharding)
    batch = largest_batch(config.data, config.model.architecture, config.train.accumulate)
    traced = step.trace(state, batch)
    start = time.perf_counter()
    compiled = _compiled(traced, target, describe(mesh), _bytes(state))
    memory: Any = compiled.memory_analysis()
    plan = Plan(
        target,
        describe(mesh),
        tuple(batch[name].shape for name in ("source", "inputs") if name in batch),
        _bytes(state.params),
        _bytes(state.opt_state),
        memory.peak_memory_in_bytes - _bytes(state),
        memory.peak_memory_in_bytes,
        len(jax.tree.leaves(state)),
        _replicated(state),
        read_program(str(compiled.as_text())),
        step_flops(config, batch),
        count_flops(traced.jaxpr),
        time.perf_counter() - start,
    )
    if plan.peak > target.chip.memory:
        said = f"the compiler needs {plan.peak / _GIB:.3f} GiB"
        raise DoesNotFit(_message(target, plan.mesh, said, _bytes(state)), plan.peak)
    return plan


def search(config: Config, target: Target) -> tuple[Plan, int]:
    """The plan of the largest batch that fits, and its rows on each device and micro-batch.

    Raises:
        DoesNotFit: not even a row a device does.
    """
    sharding = Sharding(make_mesh(config.mesh, target.devices))

    def plan(rows: int) -> Plan | None:
        size = rows * sharding.batch_shards
        data = dataclasses.replace(config.data, batch_size=size)
        try:
            return make_plan(dataclasses.replace(config, data=data), target)
        except DoesNotFit:
            if rows == 1:
                raise
            return None

    fits, found, fails = 1, plan(1), None
    assert found is not None
    while fails is None or fails - fits > 1:
        rows = 2 * fits if fails is None else (fits + fails) // 2
        if (larger := plan(rows)) is None:
            fails = rows
        else:
            fits, found = rows, larger
    return found, fits


def filled(config: Config) -> Config:
    """`config` with what a run has from its data."""
    data, model = config.data, with_head(config).model
    classes = model.num_classes
    if model.head in ("classification", "token_labels"):
        classes = classes or len(data.labels) or 2
    size = model.vocab_size or vocabulary(data, model.architecture)
    model = dataclasses.replace(model, vocab_size=size, num_classes=classes)
    return dataclasses.replace(config, model=model)


# What a TPU's compiler writes.
_NEEDED = re.compile(r"(?:Used |temporaries \()([\d.]+)([KMGT])")
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


def _compiled(
    traced: jax.stages.Traced, target: Target, mesh: str, state: int
) -> jax.stages.Compiled:
    level = jax.config.jax_optimization_level  # pyright: ignore[reportAttributeAccessIssue]
    # Takes a fraction of the time; memory and collectives are nearly those of the full effort.
    if target.chip.platform == "tpu":  # XLA for GPUs aborts on loops of kernels at O1
        jax.config.update("jax_optimization_level", "O1")
    try:
        return traced.lower().compile()
    except jax.errors.JaxRuntimeError as error:
        text = str(error)
        if "RESOURCE_EXHAUSTED" not in text:
            raise
        used = _NEEDED.search(text)
        needed = float(used[1]) * _UNITS[used[2]] if used else math.inf
        said = text.split("\n")[0].removeprefix("RESOURCE_EXHAUSTED: ").rstrip(".")
        raise DoesNotFit(_message(target, mesh, said, state), needed) from error
    finally:
        jax.config.update("jax_optimization_level", level)


def _message(target: Target, mesh: str, said: str, state: int) -> str:
    return (
        f"--plan {target.name}: {mesh}: does not fit: {said}; of each device's "
        f"{target.chip.memory / _GIB:.2f} GiB the state takes {state / _GIB:.2f} (what helps: a "
        "larger mesh.fsdp or mesh.tensor, model.remat, a smaller batch with train.accumulate)"
    )


def _bytes(tree: Any) -> int:
    """Of one device's part of arrays that are not there."""
    return sum(
        math.prod(x.sharding.shard_shape(x.shape)) * np.dtype(x.dtype).itemsize
        for x in jax.tree.leaves(tree)
    )


def _replicated(state: TrainState) -> tuple[int, int]:
    whole = [x for x in jax.tree.leaves(state.params) if x.sharding.is_fully_replicated]
    return len(whole), _bytes(whole)
