import logging
import sys

from transformer.training.orbax_noise import silence_orbax


def test_only_what_is_raised_as_well_is_silenced(caplog):
    silence_orbax()
    logger = logging.getLogger("absl")
    for path, level, message in (
        ("/x/orbax/checkpoint/future.py", logging.ERROR, "raised as well"),
        ("/x/orbax/checkpoint/future.py", logging.WARNING, "a warning"),
        ("/x/grain/loader.py", logging.ERROR, "of others"),
    ):
        logger.handle(logger.makeRecord("absl", level, path, 7, message, (), None))
    assert [record.message for record in caplog.records] == ["a warning", "of others"]


def test_other_errors_nobody_can_catch_are_still_told(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    silence_orbax()
    silence_orbax()

    class Failing:
        def __init__(self, text):
            self.text = text

        def __del__(self):
            raise RuntimeError(self.text)

    Failing("Event loop is closed")
    Failing("another")
    assert [str(unraisable.exc_value) for unraisable in told] == ["Event loop is closed", "another"]
