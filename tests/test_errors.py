"""The suggestions in messages."""

from transformer.errors import UserError, did_you_mean


def test_the_nearest_name_is_suggested():
    known = ["num_layers", "num_heads", "model_dim"]
    assert did_you_mean("num_layer", known) == "; did you mean num_layers?"
    assert did_you_mean("num_head", known, "--model.{}") == "; did you mean --model.num_heads?"


def test_nothing_is_suggested_where_nothing_is_near():
    assert did_you_mean("zzz", ["num_layers"]) == ""
    assert did_you_mean("num_layers", []) == ""


def test_a_user_error_is_a_value_error():
    assert issubclass(UserError, ValueError)
