"""What a compiled program does besides computing: its collectives, kernels and donated buffers.

Read off its text in XLA's HLO, of one device.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

_BITS = {"pred": 8, "s4": 4, "u4": 4, "s8": 8, "u8": 8, "bf16": 16, "f16": 16, "s16": 16, "u16": 16}
_BITS |= {"f32": 32, "s32": 32, "u32": 32, "f64": 64, "s64": 64, "u64": 64}
_KINDS = ("all-gather", "all-reduce", "reduce-scatter", "all-to-all", "collective-permute")

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
# A kernel's attributes go over several lines, and may end in "}}".
_END = re.compile(r"\}(,|$)")
_OPERATION = re.compile(r"^\s+(?:ROOT )?%?[\w.\-]+ = (.*)$")
_SHAPE = re.compile(r"\b([a-z]+\d*)\[([\d,]*)\]")
_CALLED = re.compile(r"(?:body|calls|to_apply|\w+_computation)=%?([\w.\-]+)")
_BRANCHES = re.compile(r"branch_computations=\{([^}]*)\}")
_CONDITION = re.compile(r"condition=%?([\w.\-]+)")
_TURNS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_LIMIT = re.compile(r" = [su]\d+\[\]\S* constant\((\d+)\)")
_CHANNEL = re.compile(r"channel_id=(\d+)")
_GROUPS = [
    re.compile(r"replica_groups=\[\d+,(\d+)\]"),  # so many groups of so many
    re.compile(r"replica_groups=\{\{([\d,]+)\}"),
    re.compile(r"replica_groups=mesh\[([^\]]*)\][^{]*\{([^}]*)\}"),  # sides; those it goes along
]


class Collective(NamedTuple):
    """One operation that devices do together.

    Attributes:
        kind: such as "all-gather". (On a TPU a reduce-scatter is an all-reduce in a fusion of
            that name.)
        shape: of the largest array that comes out, such as (1600, 6400).
        bytes: of what comes out on each device.
        group: devices that take part together; 0: not known.
        times: how often it runs in a step.
    """

    kind: str
    shape: tuple[int, ...]
    bytes: int
    group: int
    times: int

    @property
    def received(self) -> float:
        """Bytes that must reach each device, however the operation is done."""
        others = max(self.group - 1, 0)
        match self.kind:
            case "collective-permute":
                return self.bytes
            case "all-reduce" | "reduce-scatter":
                # The others' parts may be added up on the way.
                return self.bytes if others else 0
            case _:
                return self.bytes * others / max(self.group, 1)


@dataclass(frozen=True)
class Program:
    """What `read_program` found.

    Attributes:
        collectives: all.
        kernels: how often each kernel is called that is not XLA's own, by its name.
        donated: inputs whose memory an output takes.
    """

    collectives: list[Collective]
    kernels: Counter[str]
    donated: int


def read_program(text: str) -> Program:
    """The text of ``compiled.as_text()``."""
    computations, entry = _computations(text)
    collectives: dict[object, Collective] = {}
    kernels: Counter[str] = Counter()
    for number, (where, line, times) in enumerate(_walk(computations, entry, 1)):
        shape, name = _result(line)
        kind = name.removesuffix("-start")
        if kind in _KINDS:
            arrays = _arrays(shape)
            if name.endswith("-start") and kind != "all-reduce":
                arrays = [array for array in arrays if array[0]]  # without numbers of its own
                arrays = arrays[len(arrays) // 2 :]  # the first half are what goes in
            if kind == "all-reduce" and where.startswith("all-reduce-scatter"):
                kind = "reduce-scatter"
            largest = max(arrays, key=lambda array: array[1], default=((), 0))
            size, group = sum(size for _, size in arrays), _group(line)
            if kind == "reduce-scatter" and name == "all-reduce":
                size //= max(group, 1)
            # One that runs beside others is written out where it starts, goes on and ends.
            channel = _CHANNEL.search(line)
            key = channel[1] if channel else number
            if key not in collectives:
                collectives[key] = Collective(kind, largest[0], size, group, times)
        elif name == "custom-call":
            target = re.search(r'custom_call_target="([^"]+)"', line)
            if target and ("tpu_custom_call" in target[1] or "cudnn" in target[1]):
                kernels[target[1]] += times
    head = text.split("\n", 1)[0]
    return Program(list(collectives.values()), kernels, head.count("-alias)"))


def _group(line: str) -> int:
    for pattern in _GROUPS:
        if match := pattern.search(line):
            if match.lastindex == 2:
                sides = dict(re.findall(r"'(\w+)'=(\d+)", match[1]))
                return math.prod(int(sides[axis]) for axis in re.findall(r"'(\w+)'", match[2]))
            return int(match[1]) if "[" in match[0] else match[1].count(",") + 1
    return 0


def _computations(text: str) -> tuple[dict[str, list[str]], str]:
    """Name -> lines of each computation, and the name of the one that is run."""
    found: dict[str, list[str]] = {}
    entry, lines = "", None
    for line in text.split("\n"):
        if match := _COMPUTATION.match(line):
            lines = found[match[2]] = []
            entry = match[2] if match[1] else entry
        elif _END.match(line):
            lines = None
        elif lines is not None:
            lines.append(line)
    return found, entry


def _walk(
    computations: dict[str, list[str]], name: str, times: int
) -> Iterator[tuple[str, str, int]]:
    """Each operation that is run: its computation, its text, and how often."""
    for line in computations.get(name, ()):
        yield name, line, times
        inner = times * _turns(computations, line)
        called = _CALLED.findall(line)
        for branches in _BRANCHES.findall(line):
            called += [branch.strip().lstrip("%") for branch in branches.split(",")]
        for other in called:
            yield from _walk(computations, other, inner)


def _turns(computations: dict[str, list[str]], line: str) -> int:
    """Of a loop that counts up to a constant; of any other operation 1."""
    if known := _TURNS.search(line):
        return int(known[1])
    if condition := _CONDITION.search(line):
        limits = [_LIMIT.search(inner) for inner in computations.get(condition[1], ())]
        found = [int(limit[1]) for limit in limits if limit]
        return found[0] if len(found) == 1 else 1
    return 1


def _result(line: str) -> tuple[str, str]:
    """The shapes that an operation makes, as text, and its name."""
    match = _OPERATION.match(line)
    rest, depth = match[1] if match else "", 0
    for i, character in enumerate(rest):
        depth += (character in "({[") - (character in ")}]")
        if character == " " and depth == 0:
            return rest[:i], rest[i + 1 :].split("(", 1)[0]
    return "", ""


def _arrays(shape: str) -> list[tuple[tuple[int, ...], int]]:
    """Shape and bytes of each array in a tuple's text."""
    found = []
    for kind, sides in _SHAPE.findall(shape):
        if kind in _BITS:
            dims = tuple(int(side) for side in sides.split(",") if side)
            found.append((dims, math.prod(dims) * _BITS[kind] // 8))
    return found
