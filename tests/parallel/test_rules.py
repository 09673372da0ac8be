import pytest

from transformer.config import MeshConfig
from transformer.models.build import build_model
from transformer.models.presets import PRESETS
from transformer.parallel.mesh import AXES, abstract_mesh
from transformer.parallel.rules import RULES
from transformer.parallel.sharding import Sharding, parameter_axes

# Of each family the smallest.
MODELS = ("transformer-base", "gpt2", "gpt3-small", "t5-small", "t5-1.1-small", "bert-base")


def test_rules_name_sides_of_the_mesh():
    assert {side for sides in RULES.values() for side in sides} == set(AXES)


@pytest.mark.parametrize("name", MODELS)
def test_every_matrix_of_a_published_model_is_shared(name):
    """A name without a rule, or an axis that is not named, would leave it whole, unseen."""
    model = build_model(PRESETS[name])
    names, shapes = parameter_axes(model)
    assert names.keys() == shapes.keys()
    sharding = Sharding(abstract_mesh(MeshConfig(1, 4, 1)))
    for path, axes in names.items():
        split = sharding.shard_shape(axes, shapes[path].shape)
        if len(split) == 2 and "relative" not in path:
            assert split != shapes[path].shape, path
