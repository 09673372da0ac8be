"""The command line: ``transformer COMMAND ...``. What each command does is in `commands`.

Exit codes: 0 done, 2 a mistake in usage or input, 3 a plan that does not fit its machine, 1
anything else, 128 + n stopped by signal n.
"""

import contextlib
import dataclasses
import io
import os
import re
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import jax
import tyro

from transformer.commands.answer import AnswerQuestions
from transformer.commands.base import Command
from transformer.commands.classify import Classify
from transformer.commands.embed import Embed
from transformer.commands.evaluate import Evaluate
from transformer.commands.generate import Generate
from transformer.commands.inspect import Inspect
from transformer.commands.interop import Export, Import
from transformer.commands.launch import Launch
from transformer.commands.pictures import AttentionMap, PlotLoss
from transformer.commands.probe import ProbeTexts
from transformer.commands.prompt import Prompt
from transformer.commands.score import Score
from transformer.commands.training import Train
from transformer.commands.translate import Translate
from transformer.data.sources import CACHE
from transformer.errors import UserError, did_you_mean
from transformer.host_memory import keep_freed_memory
from transformer.parallel import hosts

COMMANDS: dict[str, type[Command]] = {
    "train": Train,
    "evaluate": Evaluate,
    "translate": Translate,
    "classify": Classify,
    "probe": ProbeTexts,
    "answer": AnswerQuestions,
    "embed": Embed,
    "generate": Generate,
    "score": Score,
    "prompt": Prompt,
    "attention-map": AttentionMap,
    "plot-loss": PlotLoss,
    "launch": Launch,
    "inspect": Inspect,
    "import": Import,
    "export": Export,
}


def main(arguments: Sequence[str]) -> int:
    """Runs one command and returns its exit code; mistakes are one line on stderr."""
    try:
        if not arguments or arguments[0] in ("-h", "--help"):
            print(_overview())
            return 0 if arguments else 2
        name, *rest = arguments
        if name not in COMMANDS:
            hint = did_you_mean(name, COMMANDS) or f": expected {', '.join(COMMANDS)}"
            raise UserError(f"unknown command {name!r}{hint}")
        command = parse(COMMANDS[name], rest, f"transformer {name}")
        _keep_compiled_programs()
        keep_freed_memory()
        with command.on_devices():
            return command.run()
    except UserError as error:
        if not error.shared or hosts.first():
            where = f"host {hosts.index()}: " if hosts.several() and not error.shared else ""
            print(f"error: {where}{error}", file=sys.stderr)
        if not error.shared:
            hosts.leave(error.exit_code)
        return error.exit_code
    except KeyboardInterrupt:
        hosts.leave(130)
        return 130
    except BrokenPipeError:
        # The reader of our output has gone: nothing is left to say, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception:
        if hosts.several():
            traceback.print_exc()
            hosts.leave(1)
        raise


def entry_point() -> None:
    """The console script ``transformer``."""
    sys.exit(main(sys.argv[1:]))


def parse(kind: type[Command], arguments: Sequence[str], program: str) -> Command:
    """Arguments to a command. Settings not given come from its `kind.defaults`.

    Raises:
        UserError: an unknown option (with the nearest name), a wrong value, one that is missing.
        SystemExit: after ``--help``.
    """
    wants_help = any(a in ("-h", "--help") for a in arguments)
    given = {name.replace(".", "_"): _peek(arguments, _option(name)) for name in kind.located_by}
    missing = [
        _option(name)
        for name in kind.required
        if all(_peek(arguments, _option(n)) is None for n in (name, kind.instead.get(name, name)))
    ]
    if missing and not wants_help:
        raise UserError(f"{program}: {' and '.join(missing)} expected; see {program} --help")
    default = kind.defaults(**{k: v for k, v in given.items() if v is not None})
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            command, unknown = tyro.cli(
                kind,
                default=default,
                args=list(arguments),
                prog=program,
                return_unknown_args=True,
            )
    except SystemExit as error:
        if not error.code:
            raise
        raise UserError(_one_line(complaint.getvalue())) from None
    if unknown:
        option = unknown[0].split("=")[0]
        near = did_you_mean(option, _options(default))
        raise UserError(f"unknown setting {option}{near or f'; see {program} --help'}")
    return command


def _overview() -> str:
    lines = [
        "usage: transformer COMMAND [options]; transformer COMMAND --help lists the options",
        "",
    ]
    for name, kind in COMMANDS.items():
        summary = (kind.__doc__ or "").strip().split("\n")[0]
        lines.append(f"  {name:15} {summary}")
    return "\n".join(lines)


def _option(path: str) -> str:
    # A name that Python reserves is written with an underscore at its end.
    return "--" + path.rstrip("_").replace("_", "-")


def _options(value: Any, prefix: str = "") -> list[str]:
    """The names of all options below a dataclass."""
    names = []
    for f in dataclasses.fields(value):
        inner = getattr(value, f.name)
        if dataclasses.is_dataclass(inner):
            names += _options(inner, f"{prefix}{f.name}.")
        else:
            names.append(_option(prefix + f.name))
    return names


def _peek(arguments: Sequence[str], option: str) -> str | None:
    """The value of an option that decides where the defaults come from."""
    for i, argument in enumerate(arguments):
        if argument == option:
            return arguments[i + 1] if i + 1 < len(arguments) else None
        if argument.startswith(f"{option}="):
            return argument.split("=", 1)[1]
    return None


def _one_line(box: str) -> str:
    """The first message in a box drawn by tyro, or if the output knows no such characters between
    lines of "-", the title above."""
    lines = [line.strip("│ ").strip() for line in box.split("\n")]
    if rules := [i for i, line in enumerate(lines) if re.fullmatch("-+", line)]:
        lines = lines[rules[0] + 1 :]
    body = [line for line in lines if not line.startswith("╭")]
    end = next((i for i, line in enumerate(body) if re.fullmatch(r"[─╰╯]+|-+", line)), len(body))
    text = " ".join(line for line in body[:end] if line)
    return re.sub(r"^Error parsing (--\S+|\w+): ", lambda m: _place(m[1]), text)


def _place(where: str) -> str:
    # A section's own message names the setting already.
    return f"{where}: " if where.startswith("--") else ""


def _keep_compiled_programs() -> None:
    """A second start finds what the first one compiled."""
    if not os.environ.get("JAX_COMPILATION_CACHE_DIR"):
        jax.config.update("jax_compilation_cache_dir", str(CACHE / "programs"))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)
