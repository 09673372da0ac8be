"""Plans: here of the CPU, which is at hand; with `-m plan` of the machines that configs state."""

import dataclasses
import math
import re
from functools import partial
from pathlib import Path

import jax
import pytest

from tests.parallel.cases import MODELS
from transformer import cli
from transformer.config import Config, DataConfig, TrainConfig, load
from transformer.data.largest import largest_batch
from transformer.models.build import build_model, init_params
from transformer.parallel.chips import CHIPS
from transformer.parallel.topology import Target, target_of
from transformer.training.flops import counted_step_flops, step_flops
from transformer.training.planning import DoesNotFit, Plan, filled, make_plan, search

CONFIGS = Path(__file__).parents[2] / "configs"
STATED = re.compile(r"^Plan \(--plan (\S+?)(?: (--[^)]*))?\): .*?([\d.]+) GiB of each chip", re.M)


def here(memory: float = 2**30) -> Target:
    chip = CHIPS["v5e"]._replace(memory=memory)
    return Target("here", chip, tuple(jax.devices()[:1]))


def tiny(**data) -> Config:
    model = dataclasses.replace(MODELS["gpt2"], dropout=0.0, attention_dropout=0.0)
    settings = DataConfig("language_model", block_length=32, **{"batch_tokens": 128, **data})
    return Config(model, settings, train=TrainConfig(label_smoothing=0.0))


@pytest.fixture(scope="module")
def plan() -> Plan:
    return make_plan(tiny(), here())


def test_the_state_is_donated_and_takes_what_its_arrays_do(plan):
    assert plan.donated and plan.state > 30
    params = jax.eval_shape(partial(init_params, build_model(MODELS["gpt2"])), jax.random.key(0))
    assert plan.parameters == 4 * sum(x.size for x in jax.tree.leaves(params))
    # Two moments, and two counters.
    assert plan.optimizer == 2 * plan.parameters + 8
    assert plan.peak == plan.parameters + plan.optimizer + 4 + plan.temporaries


def test_the_program_computes_what_the_model_does(plan):
    assert plan.batch == ((4, 32),)
    assert plan.program_flops == pytest.approx(plan.model_flops, rel=0.02)
    computing, _ = plan.least_seconds
    assert computing == plan.program_flops / CHIPS["v5e"].flops


def test_all_is_said(plan):
    text = str(plan)
    assert "here: 1 devices: data 1 x fsdp 1 x tensor 1" in text
    assert "batch          4 x 32 = 128 tokens a step" in text
    assert f"donated        {plan.state} of the state's {plan.state} arrays" in text
    assert "of 1.00 usable" in text and "not a measurement" in text


def test_too_little_memory_is_an_error_with_the_figures(plan):
    with pytest.raises(DoesNotFit, match=r"here: 1 devices.*: does not fit: the .* GiB") as error:
        make_plan(tiny(), here(plan.peak - 1))
    assert error.value.exit_code == 3
    assert error.value.needed == plan.peak


def test_the_largest_batch_fits_and_one_more_row_does_not(plan):
    config = tiny()
    memory = 2 * plan.peak
    found, rows = search(config, here(memory))
    assert found.batch == ((rows, 32),) and rows > 4 and found.peak <= memory
    with pytest.raises(DoesNotFit):
        make_plan(tiny(batch_size=rows + 1), here(memory))
    with pytest.raises(DoesNotFit):
        search(config, here(plan.parameters))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--plan", "v5e"], "--plan v5e: expected a chip and the sides"),
        (["--plan-search", "--workdir", "x"], "--plan-search: expected --plan CHIP:SIDES"),
        (["--plan", "v5e:2x2", "--config", "configs/gpt_answers.py"], "that of train.init_from"),
    ],
)
def test_mistakes(options, message, capsys, monkeypatch):
    monkeypatch.chdir(CONFIGS.parent)
    if "--config" not in options:
        options = [*options, "--config", "configs/gpt2_small.py"]
    assert cli.main(["train", *options]) == 2
    assert message in capsys.readouterr().err


def test_a_plan_needs_no_workdir(capsys, monkeypatch):
    monkeypatch.chdir(CONFIGS.parent)
    assert cli.main(["train", "--plan", "v5e:2x2"]) == 2
    assert "transformer train: --config expected" in capsys.readouterr().err


def stated() -> dict[str, tuple[str, list[str], float]]:
    """Config -> machine, other options and GiB that its header states."""
    found = {}
    for path in sorted(CONFIGS.glob("*.py")):
        for machine, options, memory in STATED.findall(path.read_text("utf-8")):
            found[f"{path.stem} {machine}"] = (machine, options.split(), float(memory))
    return found


def test_every_published_size_states_its_plan():
    names = {name.split()[0] for name in stated()}
    sizes = {"gpt2_small", "gpt2_medium", "gpt2_large", "gpt2_xl", "gpt3_6_7b", "gpt3_175b"}
    assert names >= sizes | {"t5_3b", "transformer_base", "transformer_big"}
    assert names >= {"bert_base", "bert_large"}


@pytest.mark.plan
@pytest.mark.parametrize("name", stated())
def test_the_stated_plans_are_those_of_the_compiler(name):
    machine, options, memory = stated()[name]
    arguments = ["--config", str(CONFIGS / f"{name.split()[0]}.py"), *options]
    command = cli.parse(cli.COMMANDS["train"], ["--plan", machine, *arguments], "train")
    config = Config(**{f.name: getattr(command, f.name) for f in dataclasses.fields(Config)})
    plan = make_plan(config, target_of(machine))
    assert plan.donated
    assert plan.peak / 2**30 == pytest.approx(memory, rel=0.1)
    if plan.batch[-1][-1] >= 512 and not config.model.attention_dropout:
        assert plan.program.kernels
    assert plan.peak <= plan.target.chip.memory
    if config.model.scan_layers:
        layers, smallest = config.model.num_layers, config.model.model_dim**2
        gathered = [c.shape for c in plan.program.collectives if c.kind == "all-gather"]
        assert gathered or config.mesh.fsdp == 1
        # (Of a single matrix the first side may be its heads, as many as there are layers.)
        stacks = [shape for shape in gathered if shape[:1] == (layers,)]
        assert not [shape for shape in stacks if math.prod(shape[1:]) >= smallest]


@pytest.mark.plan
def test_one_that_is_too_large_ends_with_code_3(capsys):
    """6.7 billion parameters on four small chips."""
    options = ["--config", str(CONFIGS / "gpt3_6_7b.py"), "--mesh.fsdp", "4"]
    assert cli.main(["train", *options, "--plan", "v5e:2x2"]) == 3
    message = capsys.readouterr().err
    assert re.search(r"does not fit: .*\(?\d+\.\d+G.* the state takes 18\.6\d", message)


@pytest.mark.plan
@pytest.mark.parametrize("name", ["gpt2_xl", "gpt3_175b", "t5_3b", "bert_large"])
def test_operations_of_published_sizes_agree_with_counting(name):
    config = filled(load(CONFIGS / f"{name}.py"))
    model = dataclasses.replace(config.model, scan_layers=True, remat="none")
    config = dataclasses.replace(config, model=model)
    data = dataclasses.replace(config.data, batch_size=8)
    batch = largest_batch(data, model.architecture)
    assert counted_step_flops(config, batch) == pytest.approx(step_flops(config, batch), rel=0.02)
