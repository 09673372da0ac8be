"""Saving on a full disk, and what is kept. (Restoring what was saved: test_checkpoint.py.)"""

import shutil

import jax
import numpy as np
import pytest

from tests.training.full_disk import full_disk
from tests.training.test_checkpoint import files, make_meta, make_state, steps
from transformer.errors import UserError
from transformer.training.checkpoint import load_for_inference, restore_state
from transformer.training.meta import read_meta
from transformer.training.saving import Checkpoints, SaveFailed, kept, set_aside


def test_kept():
    losses = {0: None, 10: 3.0, 20: 1.0, 30: 2.0, 40: None, 50: 1.0}
    assert kept(losses, 1, 0, None) == {50}
    assert kept(losses, 2, 1, None) == {40, 50}
    assert kept(losses, 1, 3, None) == {20, 30, 50}
    assert kept(losses, 1, 9, None) == {10, 20, 30, 50}
    assert kept(losses, 1, 1, 20) == {0, 20, 40, 50}
    assert kept({}, 3, 1, 1) == set()


def test_the_policy_is_kept_to_over_several_processes(tmp_path):
    for first in (0, 4):
        with Checkpoints(tmp_path / "checkpoints", 1, keep_best=2, keep_every=3) as checkpoints:
            for step in range(first, first + 4):
                loss = {1: 1.0, 4: 2.0, 5: 1.5}.get(step)
                checkpoints.save(make_state(step), make_meta(step, loss))
    assert steps(tmp_path) == [0, 1, 3, 5, 6, 7]


def test_an_evaluation_that_came_later(tmp_path):
    """Its metrics were once added by deleting the checkpoint and saving it again: a process
    killed in between had lost it."""
    with Checkpoints(tmp_path / "checkpoints", 1) as checkpoints:
        checkpoints.save(make_state(1), make_meta(1))
        checkpoints.wait()
        checkpoints.add_validation(1, {"loss": 0.5, "bleu": 1.0})
        assert read_meta(checkpoints.path(1)) == make_meta(1, 0.5)
        checkpoints.save(make_state(2), make_meta(2, 0.7))
    with Checkpoints(tmp_path / "checkpoints", 1) as checkpoints:
        checkpoints.save(make_state(3), make_meta(3))
    assert steps(tmp_path) == [1, 3]
    assert load_for_inference(tmp_path).step == 1


def test_a_damaged_checkpoint_is_set_aside(tmp_path):
    directory = tmp_path / "checkpoints"
    with Checkpoints(directory, 3) as checkpoints:
        for step in (1, 2, 3):
            checkpoints.save(make_state(step), make_meta(step))
    for _ in range(2):
        set_aside(directory, after=2)
        assert steps(tmp_path) == [1, 2]
        before = files(directory / "3.damaged")
        with Checkpoints(directory, 3) as checkpoints:
            assert checkpoints.last == 2
            checkpoints.save(make_state(3), make_meta(3))
        assert steps(tmp_path) == [1, 2, 3]
        assert files(directory / "3.damaged") == before


def large_state(step):
    """0.6 MB that do not compress."""
    values = np.random.default_rng(step).normal(size=(7, 10_007)).astype(np.float32)
    state = make_state(step)
    return state.replace(params={**state.params, "layer": {"kernel": values}})


def test_a_full_disk_is_told_in_one_line_and_the_next_save_tries_again(tmp_path, capfd):
    lines = []
    with Checkpoints(tmp_path / "checkpoints", 2, say=lines.append) as checkpoints:
        checkpoints.save(large_state(1), make_meta(1))
        checkpoints.wait()
        with full_disk():
            checkpoints.save(large_state(2), make_meta(2))
            checkpoints.wait()
            checkpoints.save(large_state(3), make_meta(3))
            checkpoints.wait()
        assert lines == [
            f"warning: cannot save step {step} in {tmp_path}/checkpoints: File too large; "
            "training goes on, and the next save tries again"
            for step in (2, 3)
        ]
        # Neither a checkpoint nor a leftover that takes the place of the next.
        assert [p.name for p in (tmp_path / "checkpoints").iterdir()] == ["1"]
        assert checkpoints.last == 1
        checkpoints.save(large_state(4), make_meta(4))
        checkpoints.require_saved(4)
    assert steps(tmp_path) == [1, 4] and len(lines) == 2
    restored = restore_state(tmp_path / "checkpoints" / "4", large_state(4))
    jax.tree.map(np.testing.assert_array_equal, restored, large_state(4))
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_a_failed_last_save_is_an_error(tmp_path):
    lines = []
    with Checkpoints(tmp_path / "checkpoints", 2, say=lines.append) as checkpoints:
        checkpoints.save(large_state(1), make_meta(1))
        checkpoints.wait()
        with full_disk(), pytest.raises(SaveFailed, match=r"cannot save step 2 .*File too large"):
            checkpoints.save(large_state(2), make_meta(2))
            checkpoints.require_saved(2)
    assert (steps(tmp_path), lines) == ([1], [])
    assert SaveFailed.exit_code == 1


def test_a_failed_first_save_is_an_error(tmp_path):
    """Nothing is lost by stopping before the first step."""
    with (
        full_disk(),
        pytest.raises(SaveFailed, match="cannot save step 0"),
        Checkpoints(tmp_path / "checkpoints", 2, say=pytest.fail) as checkpoints,
    ):
        checkpoints.save(large_state(0), make_meta(0))
        checkpoints.wait()
    assert not list((tmp_path / "checkpoints").iterdir())


def test_without_anybody_to_tell_a_failed_save_is_an_error(tmp_path):
    directory = tmp_path / "checkpoints"
    with Checkpoints(directory, 2) as checkpoints:
        checkpoints.save(make_state(1), make_meta(1))
        checkpoints.wait()
        shutil.rmtree(directory)
        directory.write_text("in the way")
        with pytest.raises(SaveFailed, match="cannot save step 2"):
            checkpoints.save(make_state(2), make_meta(2))
            checkpoints.wait()


def test_a_failure_is_noticed_between_two_saves(tmp_path):
    lines = []
    with Checkpoints(tmp_path / "checkpoints", 2, say=lines.append) as checkpoints, full_disk():
        checkpoints.save(large_state(1), make_meta(1))
        while not lines:
            checkpoints.poll()
    assert len(lines) == 1


def test_saving_an_older_step_is_an_error(tmp_path):
    """It once returned without saving, and said nothing."""
    with Checkpoints(tmp_path / "checkpoints", 2) as checkpoints:
        for step in (1, 2):
            checkpoints.save(make_state(step), make_meta(step))
        for step in (1, 2):
            with pytest.raises(UserError, match=f"cannot save step {step} .* step 2 is there"):
                checkpoints.save(make_state(step), make_meta(step))


def test_a_directory_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(UserError, match=r"cannot make .*file/checkpoints"):
        Checkpoints(tmp_path / "file" / "checkpoints", 2)
