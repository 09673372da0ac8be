"""Transformers in JAX and Flax: pure functions, one block, every architecture on top."""

__version__ = "0.1.0"
