"""Training: optimizer, steps, loop, checkpoints, metrics."""
