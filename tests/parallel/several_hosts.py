"""Run as a program, once for each host: python -m tests.parallel.several_hosts PORT COUNT INDEX
FOLDER; what they find is compared by asserts."""

import sys
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_num_cpu_devices", 2)

import numpy as np  # noqa: E402

from transformer.config import (  # noqa: E402
    Config,
    DataConfig,
    HostsConfig,
    MeshConfig,
    ModelConfig,
)
from transformer.data.pipeline import prepare  # noqa: E402
from transformer.errors import UserError  # noqa: E402
from transformer.models.build import build_model, init_params  # noqa: E402
from transformer.parallel import hosts  # noqa: E402
from transformer.parallel.mesh import make_mesh  # noqa: E402
from transformer.parallel.sharding import (  # noqa: E402
    Sharding,
    copied,
    spread,
    with_empty_rows,
)
from transformer.training.evaluation import make_evaluator  # noqa: E402
from transformer.training.fill import with_data  # noqa: E402


def agree(index: int, count: int) -> None:
    assert (hosts.several(), hosts.index(), hosts.first()) == (True, index, index == 0)
    assert hosts.gather({"x": index}) == [{"x": i} for i in range(count)]
    assert hosts.gather(None) == [None] * count
    assert (
        hosts.gather("é" * 999 * index or None)
        == [None, *("é" * 999 * i for i in (1, 2, 3))][:count]
    )
    assert hosts.from_first(["of", index, None]) == ["of", 0, None]
    votes = hosts.Votes()
    assert int(votes(15 if index == 1 else 0)) == 15
    assert int(votes(0)) == 0


def fail_together(index: int) -> None:
    def message(fails: bool, text: str) -> tuple[str, bool, int]:
        try:
            with hosts.together():
                if fails:
                    error = UserError(text)
                    error.exit_code = 7
                    raise error
        except UserError as error:
            return str(error), error.shared, error.exit_code
        return "", False, 0

    assert message(False, "") == ("", False, 0)
    assert message(True, "no file") == ("no file", True, 7)
    assert message(index == 1, "no file") == ("host 1: no file", True, 7)
    assert message(index == 0, "no file") == ("no file", True, 7)


def share_directories(index: int, folder: Path) -> None:
    hosts._SIGHT = 0.5
    hosts.require_shared(folder / "run")
    assert index or not list((folder / "run").iterdir())
    try:
        hosts.require_shared(folder / f"own-{index}")
    except UserError as error:
        assert f"own-{index}: not the directory of host 0" in str(error) or index == 0, error
        assert "not the directory of host 0; expected one that all hosts share" in str(error)
    else:
        raise AssertionError("directories of their own were taken for a shared one")


def put_rows(index: int, count: int) -> None:
    """However the mesh lies over the hosts, each gives its rows, and all have the whole batch."""
    devices = jax.device_count()
    for sides in ((devices, 1, 1), (1, devices, 1), (2, 1, devices // 2), (1, 1, devices)):
        sharding = Sharding(make_mesh(MeshConfig(*sides)))
        for accumulate, rows in ((1, 11), (2, 22), (1, 1)):
            whole = {
                "ids": np.arange(rows),
                "labels": np.arange(rows, dtype=np.int32),
                "inputs": np.arange(rows * 3, dtype=np.int32).reshape(rows, 3),
            }
            wanted = with_empty_rows(whole, sharding.batch_shards, accumulate)
            own = sharding.rows(rows, accumulate)
            part = {name: array[own] for name, array in whole.items()} | {"ids": whole["ids"]}
            if sides[0] == devices and rows > count:
                assert len(part["labels"]) < rows
            for given in (whole, part):
                for name, array in sharding.put(given, accumulate).items():
                    np.testing.assert_array_equal(copied(array), wanted[name], f"{sides} {name}")
    place = sharding.named(("vocab", None))
    table = np.arange(devices * 5.0).reshape(devices, 5)
    lying = spread(table, place)
    assert lying.sharding == place
    np.testing.assert_array_equal(copied(lying), table)


def evaluate(folder: Path) -> None:
    """Together they find what one does alone; greedy decoding and classes are for whole rows."""
    path = folder / "pairs.txt"
    path.write_text("".join(f"{'ab' * (i % 4 + 1)}\t{'xy'[i % 2]}\n" for i in range(11)))
    files = {"train": (str(path),), "validation": (str(path),), "batch_tokens": 64}
    sizes: dict[str, Any] = {"num_layers": 1, "model_dim": 8, "ff_dim": 16, "num_heads": 2}
    kinds: Any = (
        ("translation", "encoder_decoder"),
        ("classification", "decoder"),
        ("answers", "decoder"),
    )
    for objective, architecture in kinds:
        data = DataConfig(objective, data_dir=str(folder / f"{hosts.index()}"), **files)
        made = prepare(data, log=lambda _: None, decoder=architecture == "decoder")
        assert made.train and made.validation
        model = ModelConfig(architecture, **sizes)
        config = with_data(Config(model, data), made.tokenizer, made.train)
        network = build_model(config.model)
        params = init_params(network, jax.random.key(0))
        sharding = Sharding(make_mesh(MeshConfig(fsdp=2)))
        spread_params = spread(params, sharding.parameters(network))
        arguments = config, network, made.tokenizer, made.validation
        found = make_evaluator(*arguments, sharding)(spread_params)
        alone = make_evaluator(*arguments)(params)
        assert found.keys() == alone.keys() and len(found) > 2
        for name, value in alone.items():
            np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)


def main() -> None:
    """All of them, in the same order on each host."""
    port, count, index = map(int, sys.argv[1:4])
    hosts.connect(HostsConfig(f"localhost:{port}", count, index, timeout=20))
    agree(index, count)
    fail_together(index)
    share_directories(index, Path(sys.argv[4]))
    put_rows(index, count)
    evaluate(Path(sys.argv[4]))
    print("agreed", flush=True)


if __name__ == "__main__":
    main()
