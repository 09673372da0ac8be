"""Architectures: each is a thin file over the one block."""
