"""From text to batches: sources, tokenizers, the token store, the batch plan."""
