"""Timings, each beside another program on the same work."""
