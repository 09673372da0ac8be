import pytest

from tests.training.test_checkpoint import make_meta, make_state, save
from transformer.errors import UserError
from transformer.training.checkpoint import load_for_inference
from transformer.training.integrity import DamagedCheckpoint
from transformer.training.meta import Meta, loss_of, read_meta
from transformer.training.saving import Checkpoints


def test_another_format_is_refused(tmp_path):
    with Checkpoints(tmp_path / "checkpoints", 2) as checkpoints:
        meta = make_meta(1)
        checkpoints.save(make_state(1), Meta(**{**vars(meta), "format": 99}))
    with pytest.raises(UserError, match="checkpoint format 99, expected 2"):
        load_for_inference(tmp_path)


def test_a_checkpoint_that_lost_its_checksums_is_damaged(tmp_path):
    folder = save(tmp_path, [1.5]) / "checkpoints" / "1"
    assert loss_of(folder) == 1.5
    (folder / "checksums.json").unlink()
    with pytest.raises(DamagedCheckpoint, match=r"\(no checksums\.json\)"):
        read_meta(folder)
    assert loss_of(folder) is None


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
