"""What the command line can do. A command is a dataclass of its options and a `run`."""
