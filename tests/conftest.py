"""Shapes and types are checked in every test; compiled programs are kept between runs."""

import importlib.metadata
import os
import tempfile
from pathlib import Path

# Before jax is imported: the suite runs on CPU, and compiles each program once, without the
# optimisation that its tiny arrays do not repay: a fifth of the time to compile.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
flags = ["--xla_backend_optimization_level=0"]
if importlib.metadata.version("jaxlib").startswith("0.10."):  # An unknown flag ends the process.
    flags += ["--xla_cpu_use_fusion_emitters=false", "--xla_cpu_parallel_codegen_split_count=1"]
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *flags])
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "transformer-test-programs")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

from jaxtyping import install_import_hook  # noqa: E402

_hook = install_import_hook("transformer.functional", "beartype.beartype")
