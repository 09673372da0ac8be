import pytest

from tests.training.test_checkpoint import make_meta, make_state, save
from transformer.config import Config, DataConfig, ModelConfig, TrainConfig, to_dict
from transformer.errors import UserError
from transformer.training.checkpoint import load_for_inference
from transformer.training.integrity import DamagedCheckpoint
from transformer.training.meta import Meta, rank, rank_of, read_meta
from transformer.training.saving import Checkpoints


def test_another_format_is_refused(tmp_path):
    with Checkpoints(tmp_path / "checkpoints", 2) as checkpoints:
        meta = make_meta(1)
        checkpoints.save(make_state(1), Meta(**{**vars(meta), "format": 99}))
    with pytest.raises(UserError, match="checkpoint format 99, expected 2"):
        load_for_inference(tmp_path)


def test_the_best_checkpoint_of_a_task_with_labels_may_be_that_of_the_highest_score(tmp_path):
    """With spans the loss has been lowest long before the answers were best."""
    data, encoder = DataConfig("spans", train=("a.json",)), ModelConfig("encoder")
    config = to_dict(Config(encoder, data, train=TrainConfig(best_by="score")))
    metas = [
        Meta(step, config, {}, "", validation={"loss": loss, "f1": f1, "exact_match": 0.1})
        for step, loss, f1 in [(1, 2.6, 0.39), (2, 2.8, 0.49), (3, 2.9, 0.45)]
    ]
    assert [rank(meta) for meta in metas] == [-0.39, -0.49, -0.45]
    assert rank(Meta(4, config, {}, "")) is None
    by_loss = to_dict(Config(encoder, data))
    assert rank(Meta(5, by_loss, {}, "", validation={"loss": 2.6, "f1": 0.39})) == 2.6
    for meta in metas:
        with Checkpoints(tmp_path / "checkpoints", 1) as checkpoints:
            checkpoints.save(make_state(meta.step), meta)
    assert {p.name for p in (tmp_path / "checkpoints").iterdir()} == {"2", "3"}


def test_a_checkpoint_that_lost_its_checksums_is_damaged(tmp_path):
    folder = save(tmp_path, [1.5]) / "checkpoints" / "1"
    assert rank_of(folder) == 1.5
    (folder / "checksums.json").unlink()
    with pytest.raises(DamagedCheckpoint, match=r"\(no checksums\.json\)"):
        read_meta(folder)
    assert rank_of(folder) is None


def test_format_1_had_no_checksums(tmp_path):
    with Checkpoints(tmp_path / "checkpoints", 2) as checkpoints:
        meta = Meta(**{**vars(make_meta(1, 1.5)), "format": 1})
        checkpoints.save(make_state(1), meta)
    folder = tmp_path / "checkpoints" / "1"
    (folder / "checksums.json").unlink()
    assert read_meta(folder) == meta
    assert load_for_inference(tmp_path).step == 1


def test_every_flipped_byte_is_found(tmp_path):
    folder = save(tmp_path, [1.5]) / "checkpoints" / "1"
    file = folder / "meta" / "metadata"
    content = file.read_bytes()
    for position in range(0, len(content), 97):
        changed = bytearray(content)
        changed[position] ^= 1
        file.write_bytes(changed)
        with pytest.raises(DamagedCheckpoint, match="meta/metadata: not the bytes"):
            read_meta(folder)
