"""What lies where; and training on eight devices, which one process pretends to have."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from jax.sharding import PartitionSpec

from tests.parallel.cases import train_on
from transformer.config import MeshConfig, ModelConfig
from transformer.errors import UserError
from transformer.models.build import build_model
from transformer.parallel.mesh import abstract_mesh
from transformer.parallel.sharding import Sharding, with_empty_rows
from transformer.training.checkpoint import load_for_inference

ROOT = Path(__file__).parents[2]


def sharding(*sides: int) -> Sharding:
    return Sharding(abstract_mesh(MeshConfig(*sides)))


def test_names_become_sides_of_the_mesh():
    spec = sharding(1, 4, 2).spec(("embed", None, "heads"))
    assert spec == PartitionSpec("fsdp", None, "tensor")


def test_a_name_without_a_rule_is_an_error():
    """JAX's own tables leave such an axis in one piece, silently."""
    with pytest.raises(UserError, match="axis 'hedas': no rule says where it lies; expected lay"):
        sharding(1, 2, 1).spec(("embed", "hedas"))


def test_what_the_mesh_does_not_divide_is_named():
    config = ModelConfig("decoder", 1, 16, 24, 4, num_kv_heads=2, vocab_size=30)
    model = build_model(config)
    sharding(1, 8, 2).parameters(model)
    message = (
        r"parameter embedding/embedding: axis 'vocab' of 30, in the shape \(30, 16\): expected a "
        r"multiple of mesh.tensor = 4"
    )
    with pytest.raises(UserError, match=message):
        sharding(1, 2, 4).parameters(model)
    with pytest.raises(UserError, match=r"parameter \S+: axis 'embed' of 16, .* mesh.fsdp = 3"):
        sharding(1, 3, 1).parameters(model)
    heads = ModelConfig("decoder", 1, 16, 24, 2, vocab_size=32)
    with pytest.raises(UserError, match=r"model.num_heads = 2: expected a multiple of mesh.tensor"):
        sharding(1, 1, 4).parameters(build_model(heads))


def test_rows_that_are_missing_are_empty_ones_at_the_end_of_each_micro_batch():
    batch = {"labels": np.arange(6), "weights": np.ones((6, 2))}
    filled = with_empty_rows(batch, 4, accumulate=2)
    np.testing.assert_array_equal(filled["labels"], [0, 1, 2, -1, 3, 4, 5, -1])
    np.testing.assert_array_equal(filled["weights"][:, 1], [1, 1, 1, 0, 1, 1, 1, 0])
    np.testing.assert_array_equal(with_empty_rows(batch, 3)["labels"], batch["labels"])


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("eight")
    result = subprocess.run(
        [sys.executable, "-m", "tests.parallel.eight_devices", str(folder)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    assert "Involuntary full rematerialization" not in result.stderr
    line = next(line for line in result.stdout.splitlines() if line.startswith("JSON "))
    return {**json.loads(line.removeprefix("JSON ")), "folder": folder}


def test_every_family_learns_the_same_on_every_mesh(found):
    """With dropout, in float32: 4e-7 of a loss near 4.5, 3e-7 of gradients up to 0.7."""
    assert len(found["cases"]) == 9
    for name, case in found["cases"].items():
        assert case["loss"] < 2e-6, name
        assert case["gradient"] < 2e-6 < 1e-3 < case["largest gradient"], name


def test_each_device_runs_the_kernel_of_attention_on_its_rows_and_heads(found):
    """In float32, forward and gradient; two query heads share a key's."""
    assert found["kernel"] < 1e-5


@pytest.mark.parametrize("name", ["generated", "beams", "translated"])
def test_eight_devices_decode_what_one_does(found, name):
    one, eight = found["decoded"][name]
    assert one == eight and len({str(ids) for ids in one}) > 2


@pytest.mark.parametrize("name", ["scored", "masked", "answers"])
def test_eight_devices_find_the_scores_that_one_does(found, name):
    one, eight = found["decoded"][name]
    np.testing.assert_allclose(eight, one, rtol=1e-5)


def test_a_cache_lies_in_parts_of_rows_and_heads(found):
    assert found["decoded"]["cache"] == [
        [[8, 2, 4, 16], [8, 2, 16, 4]],
        [[2, 1, 4, 16], [2, 1, 16, 4]],
    ]


def test_each_device_classifies_its_rows(found):
    """Of five, filled up to eight for four groups of two devices."""
    (_, one), ((devices, rows), eight) = found["decoded"]["classes"]
    assert (devices, rows) == (8, 2)
    np.testing.assert_allclose(eight, one, rtol=1e-5)


def test_a_step_is_given_its_state_and_leaves_it_where_it_lies(found):
    assert found["step"]["given"] and found["step"]["stays"]


def test_no_stack_of_layers_is_gathered_whole(found):
    """But its layers one by one: at most a table of 64 x 16, or a layer's matrix of 16 x 32.

    The smallest matrices of all six layers have 6 x 16 x 16 numbers. Split over its layers, a
    stack would have to be.
    """
    gathers = found["gathers"]
    assert 16 * 32 <= gathers["t5"] <= 64 * 16 and 16 * 32 / 2 <= gathers["gpt3"] <= 64 * 16
    assert gathers["by layers"] >= 6 * 16 * 16


def test_fully_sharded_each_device_holds_its_share_of_every_matrix(found):
    assert found["step"]["share"] == 1 / 8


def test_a_run_of_eight_devices_is_that_of_one_and_goes_on_there(found, tmp_path):
    """Micro-batches of 11 rows, which 4 parts do not share evenly."""
    losses = train_on((1, 1, 1), tmp_path, 6)
    np.testing.assert_allclose(losses[:5], found["losses"], rtol=1e-5)
    assert load_for_inference(found["folder"] / "run").step == 4
    again = train_on((1, 1, 1), found["folder"], 6)
    np.testing.assert_allclose(again, losses, rtol=1e-5)
