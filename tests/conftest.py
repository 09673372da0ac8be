"""Shapes and types are checked in every test; compiled programs are kept between runs."""

import os
import tempfile
from pathlib import Path

# Before jax is imported: the suite runs on CPU, and compiles each program once, without the
# optimisation that its tiny arrays do not repay (half the time to compile).
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(tempfile.gettempdir()) / "transformer-test-programs")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

from jaxtyping import install_import_hook

_hook = install_import_hook("transformer.functional", "beartype.beartype")
