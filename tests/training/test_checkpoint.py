import os
import shutil

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from transformer.config import Config, ModelConfig, OptimizerConfig, to_dict
from transformer.errors import UserError
from transformer.training.checkpoint import (
    average,
    find,
    last_intact,
    load_config,
    load_for_inference,
    restore_state,
)
from transformer.training.meta import Meta, read_meta
from transformer.training.optimizer import make_optimizer, make_schedule
from transformer.training.saving import Checkpoints
from transformer.training.state import TrainState

TOKENIZER = {"kind": "symbols", "symbols": ["é", "▁"]}


def make_state(step=1, width=5, value=None, names=("kernel", "bias")):
    value = step if value is None else value
    params = {
        "embedding": {"embedding": jnp.full((3, 7), value, jnp.float32)},
        "layer": {n: jnp.full((7, width)[i:], value, jnp.float32) for i, n in enumerate(names)},
    }
    config = OptimizerConfig(clip_norm=1.0, weight_decay=0.1)
    optimizer = make_optimizer(config, make_schedule(config, 7, 100))
    return TrainState(jnp.asarray(step, jnp.int32), params, optimizer.init(params))


def make_meta(step, loss=None):
    config = Config(model=ModelConfig(vocab_size=3))
    validation = None if loss is None else {"loss": loss, "bleu": 1.0}
    return Meta(step, to_dict(config), TOKENIZER, "abc", validation)


def save(workdir, losses, keep=2, **kwargs):
    """One checkpoint for every loss, at steps 1, 2, ..."""
    with Checkpoints(workdir / "checkpoints", keep) as checkpoints:
        for step, loss in enumerate(losses, 1):
            checkpoints.save(make_state(step, **kwargs), make_meta(step, loss))
    return workdir


def steps(workdir):
    return sorted(int(p.name) for p in (workdir / "checkpoints").iterdir() if p.name.isdigit())


def test_restores_what_was_saved(tmp_path, caplog):
    save(tmp_path, [2.5])
    with Checkpoints(tmp_path / "checkpoints", 2) as checkpoints:
        assert checkpoints.last == 1
        assert read_meta(checkpoints.path(1)) == make_meta(1, 2.5)
        expected = make_state(1)
        state = restore_state(checkpoints.path(1), jax.eval_shape(make_state, 1))
    assert jax.tree.structure(state) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, state, expected)
    load_for_inference(tmp_path)
    assert [record.message for record in caplog.records if record.levelname != "INFO"] == []


def test_the_steps_that_follow_do_not_reach_a_save_under_way(tmp_path):
    """Saving goes on in the background while the next steps take over the state's memory."""
    step = jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)
    make = jax.jit(lambda: make_state(1, width=100_003))
    expected, state = make(), make()
    with Checkpoints(tmp_path / "checkpoints", 2) as checkpoints:
        checkpoints.save(state, make_meta(1))
        for _ in range(5):
            state = step(state)
        jax.block_until_ready(state)
        checkpoints.wait()
        restored = restore_state(checkpoints.path(1), jax.eval_shape(make))
    jax.tree.map(np.testing.assert_array_equal, restored, expected)


def test_keeps_the_latest_and_the_best(tmp_path):
    save(tmp_path, [3.0, 1.0, None, 2.0, None])
    assert steps(tmp_path) == [2, 4, 5]
    # A later process knows the best one too.
    with Checkpoints(tmp_path / "checkpoints", 2) as checkpoints:
        for step in (6, 7):
            checkpoints.save(make_state(step), make_meta(step))
    assert steps(tmp_path) == [2, 6, 7]
    with Checkpoints(tmp_path / "checkpoints", 2) as checkpoints:
        for step, loss in ((8, 0.5), (9, None), (10, None)):
            checkpoints.save(make_state(step), make_meta(step, loss))
    assert steps(tmp_path) == [8, 9, 10]


def test_another_model_is_refused_with_every_path_and_both_shapes(tmp_path):
    """A kernel of 10 columns was once restored into one of 20."""
    save(tmp_path, [1.0])
    like = jax.eval_shape(lambda: make_state(1, width=11, names=("kernel", "offset")))
    with pytest.raises(UserError) as error:
        restore_state(tmp_path / "checkpoints" / "1", like)
    message = str(error.value)
    assert "layer/kernel: (7, 5) in the checkpoint, (7, 11) in the model" in message
    assert "layer/bias: (5,) in the checkpoint, missing in the model" in message
    assert "layer/offset: missing in the checkpoint, (11,) in the model" in message
    assert "embedding" not in message


def test_an_unfinished_checkpoint_is_ignored(tmp_path):
    """What kill -9 left of a save once broke the next load or the next save."""
    save(tmp_path, [1.0, 2.0])
    leftover = tmp_path / "checkpoints" / "3.orbax-checkpoint-tmp"
    shutil.copytree(tmp_path / "checkpoints" / "2", leftover)
    shutil.rmtree(leftover / "meta")
    assert load_for_inference(tmp_path, "last").step == 2
    with Checkpoints(tmp_path / "checkpoints", 2) as checkpoints:
        assert checkpoints.last == 2
        checkpoints.save(make_state(3), make_meta(3))
    assert load_for_inference(tmp_path, "last").step == 3
    assert not leftover.exists()


def files(directory):
    return sorted(p.relative_to(directory) for p in directory.rglob("*"))


def test_a_copy_loads_and_loses_nothing(tmp_path):
    """A copied checkpoint was once taken for an unfinished one and deleted."""
    save(tmp_path / "run", [1.0, 2.0])
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "run", copy)
    before = files(copy)
    assert load_for_inference(copy).step == 1
    assert load_for_inference(copy / "checkpoints", "last").step == 2
    assert load_for_inference(copy / "checkpoints" / "2").step == 2
    with Checkpoints(copy / "checkpoints", 2) as checkpoints:
        restore_state(checkpoints.path(2), jax.eval_shape(make_state, 2))
    assert files(copy) == before

    one = tmp_path / "released model"
    shutil.copytree(copy / "checkpoints" / "2", one)
    assert load_for_inference(one).step == 2


def test_loading_does_not_need_write_access(tmp_path):
    save(tmp_path, [1.0])
    for path in (tmp_path, *tmp_path.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        before = {p: os.stat(p).st_mtime_ns for p in tmp_path.rglob("*")}
        assert load_for_inference(tmp_path).step == 1
        assert before == {p: os.stat(p).st_mtime_ns for p in tmp_path.rglob("*")}
    finally:
        for path in (tmp_path, *tmp_path.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)


def test_load_for_inference(tmp_path):
    save(tmp_path, [3.0, 1.0, 2.0], keep=3)
    loaded = load_for_inference(tmp_path)
    assert (loaded.step, loaded.tokenizer) == (2, TOKENIZER)
    assert loaded.config == load_config(tmp_path) == Config(model=ModelConfig(vocab_size=3))
    jax.tree.map(np.testing.assert_array_equal, loaded.params, make_state(2).params)
    assert load_for_inference(tmp_path, "last").step == 3
    assert load_for_inference(tmp_path, 1).step == load_for_inference(tmp_path, "1").step == 1


def test_best_is_the_last_where_none_was_evaluated(tmp_path):
    save(tmp_path, [None, None])
    assert load_for_inference(tmp_path, "best").step == 2


def test_average_of_the_last_checkpoints(tmp_path):
    """avg(1, 3) = 2, for a tied parameter too, which was once counted twice."""
    with Checkpoints(tmp_path / "checkpoints", 3) as checkpoints:
        for step, value in ((1, 9.0), (2, 1.0), (3, 3.0)):
            checkpoints.save(make_state(step, value=value), make_meta(step))
    loaded = load_for_inference(tmp_path, "average:2")
    assert loaded.step == 3
    jax.tree.map(np.testing.assert_array_equal, loaded.params, make_state(value=2.0).params)
    again = load_for_inference(tmp_path, "average:2")
    jax.tree.map(np.testing.assert_array_equal, loaded.params, again.params)


def test_average_is_exact():
    tree = {"kernel": np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)}
    np.testing.assert_array_equal(average([tree] * 3)["kernel"], tree["kernel"])
    # In float32 the 1 would be lost.
    trees = [{"a": np.float32(x)} for x in (1e8, 1.0, -1e8)]
    assert average(trees)["a"] == np.float32(1 / 3)
    with pytest.raises(UserError, match="at least 1"):
        average([])


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (7, "has the steps 1, 2"),
        ("newest", "expected best, last, a step's number or average:N"),
        ("average:3", "has 2 checkpoints"),
        ("average:0", "expected best"),
    ],
)
def test_a_wrong_step_is_an_error(tmp_path, step, message):
    save(tmp_path, [1.0, 2.0])
    with pytest.raises(UserError, match=message):
        load_for_inference(tmp_path, step)


def test_no_checkpoint_is_an_error(tmp_path):
    with pytest.raises(UserError, match="no such directory"):
        find(tmp_path / "nowhere")
    with pytest.raises(UserError, match="no checkpoint in it"):
        load_for_inference(tmp_path)
    assert not list(tmp_path.iterdir())


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "cut": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "flipped": flip_a_byte,
    "missing": lambda path: path.unlink(),
}


def array_file(workdir, step):
    """The largest file of a checkpoint's arrays."""
    found = (workdir / "checkpoints" / str(step) / "state").rglob("*")
    return max((p for p in found if p.is_file()), key=lambda p: p.stat().st_size)


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_newest_checkpoint_is_named_and_passed_over(tmp_path, damage, capfd):
    save(tmp_path, [3.0, 2.0, 1.0], keep=3)
    file = array_file(tmp_path, 3)
    DAMAGE[damage](file)
    folder = tmp_path / "checkpoints" / "3"
    before = files(tmp_path)
    for step in ("best", "last"):
        lines = []
        loaded = load_for_inference(tmp_path, step, lines.append)
        assert loaded.step == 2
        jax.tree.map(np.testing.assert_array_equal, loaded.params, make_state(2).params)
        (line,) = lines
        assert line.startswith(f"{folder}: damaged or incomplete checkpoint (state/")
        assert file.name in line and line.endswith("; taking step 2 instead")
    assert load_for_inference(tmp_path, "average:2", lines.append).step == 2
    resumed = last_intact(tmp_path / "checkpoints", lines.append)
    assert resumed == make_meta(2, 2.0) and len(lines) == 3
    # Asked for by name, there is nothing to take instead.
    for path, step in ((tmp_path, 3), (folder, "best")):
        with pytest.raises(UserError, match="checkpoints/3: damaged or incomplete checkpoint"):
            load_for_inference(path, step)
    assert capfd.readouterr() == ("", "")
    assert load_for_inference(tmp_path).step == 2
    assert capfd.readouterr().err.startswith(f"warning: {folder}: damaged")
    assert files(tmp_path) == before


def test_best_passes_over_to_the_next_best(tmp_path):
    save(tmp_path, [2.0, 3.0, 1.0, None], keep=4)
    array_file(tmp_path, 3).unlink()
    lines = []
    assert load_for_inference(tmp_path, "best", lines.append).step == 1
    (tmp_path / "checkpoints" / "1" / "meta" / "metadata").write_text("{")
    assert load_for_inference(tmp_path, "best", lines.append).step == 2
    assert len(lines) == 2


def test_all_damaged_is_one_clear_error(tmp_path, capfd):
    save(tmp_path, [2.0, 1.0])
    array_file(tmp_path, 1).unlink()
    (tmp_path / "checkpoints" / "2" / "meta" / "metadata").write_text("{")
    expected = (
        r"checkpoints: 0 intact checkpoints, expected 1 "
        r"\(damaged: 2: meta/metadata: 1 bytes, expected \d+; 1: state/.*: No such file"
    )
    with pytest.raises(UserError, match=expected):
        load_for_inference(tmp_path, "last")
    with pytest.raises(UserError, match=expected):
        last_intact(tmp_path / "checkpoints", pytest.fail)
    with pytest.raises(UserError, match="1 intact checkpoints, expected 2"):
        array_file(tmp_path, 1)
        save(tmp_path / "other", [None, None])
        array_file(tmp_path / "other", 2).unlink()
        load_for_inference(tmp_path / "other", "average:2")
    assert capfd.readouterr() == ("", "")


def test_missing_arrays_where_there_are_no_checksums(tmp_path, capfd):
    """As in checkpoints of format 1. Threads once printed "Event loop is closed"."""
    save(tmp_path, [1.0])
    shutil.rmtree(array_file(tmp_path, 1).parent)
    (tmp_path / "checkpoints" / "1" / "checksums.json").unlink()
    meta = tmp_path / "checkpoints" / "1" / "meta" / "metadata"
    meta.write_text(meta.read_text().replace('"format": 2', '"format": 1'))
    for load in (
        lambda: load_for_inference(tmp_path),
        lambda: restore_state(tmp_path / "checkpoints" / "1", make_state(1)),
    ):
        with pytest.raises(UserError, match="checkpoints/1: damaged or incomplete checkpoint"):
            load()
    assert capfd.readouterr() == ("", "")


def test_step_0_is_not_averaged(tmp_path):
    with Checkpoints(tmp_path / "checkpoints", 3) as checkpoints:
        checkpoints.save(make_state(0), make_meta(0))
        checkpoints.wait()
        assert load_for_inference(tmp_path, "average:1").step == 0
        for step in (1, 2):
            checkpoints.save(make_state(step), make_meta(step))
    assert load_for_inference(tmp_path, 0).step == 0
    loaded = load_for_inference(tmp_path, "average:2")
    jax.tree.map(np.testing.assert_array_equal, loaded.params, make_state(value=1.5).params)
    with pytest.raises(UserError, match=r"has 2 checkpoints: \[1, 2\]"):
        load_for_inference(tmp_path, "average:3")


def test_restores_to_given_shardings(tmp_path):
    save(tmp_path, [1.0])
    mesh = jax.make_mesh((1,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("model"))
    like = jax.eval_shape(make_state, 1)
    params = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows), like.params
    )
    restored = restore_state(tmp_path / "checkpoints" / "1", like.replace(params=params))
    assert all(x.sharding == rows for x in jax.tree.leaves(restored.params))
    jax.tree.map(np.testing.assert_array_equal, restored, make_state(1))
