"""Weights of other programs, in and out: Hugging Face's folders."""
