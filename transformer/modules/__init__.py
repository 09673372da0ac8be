"""Flax modules: they declare parameters and call `transformer.functional`."""
