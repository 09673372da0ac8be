"""Where a run's first parameters come from, if not from chance: ``train.init_from``."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from transformer.config import Config, ModelConfig, from_dict, head_of
from transformer.errors import UserError
from transformer.training.checkpoint import (
    Loaded,
    last_meta,
    load_config,
    load_for_inference,
)

# What may differ from the model that training starts from: it changes how parameters are
# trained, not what they mean. (Of the vocabulary's size, the embedding's shape tells.)
_FREE = {"dropout", "attention_dropout", "ff_dropout", "attention", "dtype", "initializer"}
_FREE |= {"scan_layers", "remat"}
_FREE |= {"vocab_size", "head", "num_classes", "next_sentence"}
_VOCABULARY = {"embedding", "output", "output_bias"}
# What every model has; the others belong to its head.
_BODY = {"embedding", "encoder", "decoder"}


def with_model(config: Config, workdir: str | Path) -> Config:
    """``config``, or where it leaves the model to ``train.init_from``, with that one's.

    In a run that has begun in ``workdir`` it is the run's own: what it started from may be gone.

    Raises:
        UserError: there is no such checkpoint.
    """
    if not config.leaves_model:
        return config
    saved = last_meta(Path(workdir) / "checkpoints")
    if saved:
        return dataclasses.replace(config, model=from_dict(saved.config).model)
    with _named(config):
        origin = load_config(str(config.train.init_from)).model
    # The head follows from the objective.
    bare = dataclasses.replace(origin, head="language_model", num_classes=None, next_sentence=False)
    return dataclasses.replace(config, model=bare)


@contextmanager
def _named(config: Config) -> Iterator[None]:
    """Says in an error which setting led to the checkpoint."""
    try:
        yield
    except UserError as error:
        raise UserError(f"train.init_from = {config.train.init_from!r}: {error}") from error


def load_start(config: Config) -> Loaded | None:
    """The checkpoint that ``train.init_from`` names: the best one; None if it names none.

    Of another head its classifier is left out: where an answer begins and ends has as many
    outputs as two classes, but means something else.

    Raises:
        UserError: there is none, or it is of a model with other settings.
    """
    path = config.train.init_from
    if path is None:
        return None
    with _named(config):
        loaded = load_for_inference(path)
    for field in dataclasses.fields(ModelConfig):
        given, theirs = (getattr(c.model, field.name) for c in (config, loaded.config))
        if given != theirs and field.name not in _FREE:
            raise UserError(
                f"model.{field.name} = {given!r}: expected {theirs!r}, as in train.init_from = "
                f"{path!r}; to have its settings leave out all of the model's"
            )
    if loaded.config.model.head != head_of(config.data.objective):
        kept = {name: tree for name, tree in loaded.params.items() if name != "classifier"}
        return loaded._replace(params=kept)
    return loaded


def adapted(params: Any, fresh: Any) -> Any:
    """Parameters of another run, fitted to a model with more ids, or with another head.

    Ids that are new, at the end of the vocabulary, keep their fresh rows (Radford et al. 2018,
    section 3.3: "randomly initialized"); so does each part of a head unless there is one of that
    name and shape.

    Args:
        params: of the other run.
        fresh: of the model, drawn at random.
    """
    adapted = {name: tree for name, tree in params.items() if name in _BODY}
    tables = adapted.get("embedding", {})
    for name in _VOCABULARY & tables.keys() & fresh["embedding"].keys():
        old, new = tables[name], fresh["embedding"][name]
        if len(old) < len(new) and old.shape[1:] == new.shape[1:]:
            grown = jnp.concatenate([old, new[len(old) :]])
            adapted["embedding"] = {**adapted["embedding"], name: grown}
    for name in fresh.keys() - _BODY:
        old = params.get(name)
        same = old is not None and jax.tree.map(jnp.shape, old) == jax.tree.map(
            jnp.shape, fresh[name]
        )
        adapted[name] = old if same else fresh[name]
    return adapted
