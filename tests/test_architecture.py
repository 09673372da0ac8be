"""Rules about the source itself: who imports whom, sizes of files, docstrings, mirrored tests."""

import ast
import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import transformer

PACKAGE = Path(transformer.__file__).parent
TESTS = Path(__file__).parent
SOURCES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))
MOST_LINES = 350

# What each part of the package may import of the others: downwards only. A part may always
# import itself, and everybody `errors`.
MAY_IMPORT = {
    "__init__": set(),
    "errors": set(),
    "host_memory": set(),
    "config": set(),
    "functional": set(),
    "data": {"config"},
    "modules": {"config", "functional"},
    "models": {"config", "functional", "modules"},
    "parallel": {"config", "functional", "models", "modules"},
    "decoding": {"config", "data", "functional", "models", "modules"},
    "training": {
        "config",
        "data",
        "decoding",
        "functional",
        "host_memory",
        "models",
        "modules",
        "parallel",
    },
    "interop": {"config", "data", "functional", "models", "modules", "training"},
    "analysis": {"config", "data", "decoding", "functional", "models", "modules", "training"},
}
MAY_IMPORT["commands"] = MAY_IMPORT["analysis"] | {"analysis", "interop", "parallel"}
MAY_IMPORT["cli"] = MAY_IMPORT["commands"] | {"commands", "host_memory"}

# Sources whose tests are elsewhere: they have no behaviour of their own to test apart.
TESTED_IN = {
    **{
        f"config/{name}.py": "test_config.py"
        for name in (
            "data",
            "decoding",
            "experiment",
            "generation",
            "hosts",
            "mesh",
            "model",
            "require",
            "training",
        )
    },
    **{
        f"commands/{name}.py": "test_cli.py"
        for name in ("base", "evaluate", "pictures", "training", "translate")
    },
    "commands/embed.py": "decoding/test_embeddings.py",
    "commands/interop.py": "interop/test_transfer.py",
    "commands/inspect.py": "test_cli.py",
    "commands/launch.py": "parallel/test_hosts.py",
    "training/beginning.py": "parallel/test_hosts.py",
    "training/result.py": "training/test_loop.py",
    "functional/partition.py": "parallel/test_sharding.py",
    "modules/parameters.py": "parallel/test_sharding.py",
    **{f"commands/{name}.py": "test_cli_generate.py" for name in ("generate", "prompt", "score")},
    "decoding/prefix.py": "decoding/test_generate.py",
    "decoding/steps.py": "decoding/test_generate.py",
    **{
        f"interop/{name}.py": "interop/test_parity.py"
        for name in ("family", "gpt", "llama", "marian", "t5")
    },
    **{
        f"interop/{name}.py": "interop/test_encoder_parity.py"
        for name in ("bert", "roberta", "roformer")
    },
    "commands/answer.py": "training/test_spans.py",
    "commands/classify.py": "training/test_classification.py",
    "commands/predictions.py": "training/test_token_labels.py",
    "commands/probe.py": "training/test_classification.py",
    "modules/attention.py": "modules/test_torch_parity.py",
    "modules/block.py": "modules/test_torch_parity.py",
    "modules/embed.py": "models/test_seq2seq.py",
    "modules/initializers.py": "models/test_parameter_counts.py",
    "modules/linear.py": "modules/test_torch_parity.py",
    "models/cache.py": "models/test_decoder.py",
    "data/symbols.py": "data/test_tokenizer.py",
    "data/objectives.py": "training/test_loop.py",
    "training/heads.py": "training/test_losses.py",
    "training/evaluation.py": "training/test_loop.py",
    "training/state.py": "training/test_step.py",
    "parallel/chips.py": "training/test_flops.py",
}


def tree(source: str) -> ast.Module:
    return ast.parse((PACKAGE / source).read_text("utf-8"))


def part(source: str) -> str:
    return source.split("/")[0].removesuffix(".py")


def imported_modules(source: str) -> set[str]:
    """Every module that is imported, inside functions too."""
    names = set()
    for node in ast.walk(tree(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{source}:{node.lineno}: a relative import"
            # `from transformer import config` imports a module; elsewhere the parent suffices.
            parent = str(node.module)
            names |= {f"{parent}.{alias.name}" for alias in node.names}
    return names


def imported_parts(source: str) -> set[str]:
    ours = (name.split(".") for name in imported_modules(source))
    return {name[1] for name in ours if name[0] == "transformer" and name[1] != "__version__"}


@pytest.mark.parametrize("source", SOURCES)
def test_imports_go_downwards(source):
    allowed = MAY_IMPORT[part(source)] | {part(source), "errors"}
    assert imported_parts(source) <= allowed


def test_an_upward_import_would_be_found():
    assert "models" in imported_parts("decoding/translate.py")
    assert "config" in imported_parts("commands/training.py")
    assert "decoding" not in MAY_IMPORT["models"]


@pytest.mark.parametrize("source", [s for s in SOURCES if part(s) in ("functional", "data")])
def test_functions_and_data_know_no_flax(source):
    assert not any(name.split(".")[0] == "flax" for name in imported_modules(source))


def test_pure_functions_are_usable_alone():
    """Without a configuration, and without loading flax or anything of training."""
    code = (
        "import sys; from transformer.functional import attend;"
        "from transformer.functional import attention;"
        "heavy = {'flax', 'optax', 'orbax', 'grain', 'tensorflow_datasets', 'tyro'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=PACKAGE.parent,
        check=True,
    )
    assert result.stdout.strip() == "[]"


@pytest.mark.parametrize("source", SOURCES)
def test_files_are_short(source):
    lines = (PACKAGE / source).read_text("utf-8").count("\n")
    assert lines <= MOST_LINES, f"{source} has {lines} lines: it does more than one thing"


@pytest.mark.parametrize("source", SOURCES)
def test_modules_and_what_is_public_in_them_have_docstrings(source):
    module = tree(source)
    assert ast.get_docstring(module), f"{source} has no docstring"
    missing = [
        f"{source}:{node.lineno} {node.name}"
        for node in module.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert not missing


def test_examples_in_docstrings_run():
    with_examples = [s for s in SOURCES if ">>>" in (PACKAGE / s).read_text("utf-8")]
    assert with_examples
    for source in with_examples:
        name = "transformer." + source.removesuffix(".py").replace("/", ".")
        module = importlib.import_module(name)
        result = doctest.testmod(module, extraglobs={"jax": importlib.import_module("jax")})
        assert result.attempted > 0 and result.failed == 0, name


@pytest.mark.parametrize("source", [s for s in SOURCES if not s.endswith("__init__.py")])
def test_every_source_has_a_test_file_in_the_same_place(source):
    folder, _, name = source.rpartition("/")
    mirrored = f"{folder}/test_{name}" if folder else f"test_{name}"
    expected = TESTED_IN.get(source, mirrored)
    assert (TESTS / expected).is_file(), f"no tests/{expected} for transformer/{source}"
    assert source not in TESTED_IN or not (TESTS / mirrored).is_file(), f"{mirrored} exists now"
