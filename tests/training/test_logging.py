import io
from contextlib import nullcontext

from rich.console import Console

from tests.training.full_disk import full_disk
from transformer.training.logging import METRICS_FILE, ConsoleReport, MetricsLog, read_metrics


def test_metrics_come_back(tmp_path):
    with MetricsLog(tmp_path, 0) as log:
        log.write(5, "train", {"loss": 2.5})
        log.write(5, "validation", {"loss": 3.5, "bleu": 7.0})
    assert read_metrics(tmp_path) == [
        {"step": 5, "split": "train", "loss": 2.5},
        {"step": 5, "split": "validation", "loss": 3.5, "bleu": 7.0},
    ]
    (events,) = (tmp_path / "tensorboard").iterdir()
    content = events.read_bytes()
    assert b"train/loss" in content and b"validation/bleu" in content


def test_a_resumed_run_logs_no_step_twice(tmp_path):
    """A killed run has logged steps that its last checkpoint has not; and half a line."""
    with MetricsLog(tmp_path, 0) as log:
        for step in (5, 10, 15):
            log.write(step, "train", {"loss": float(step)})
    with (tmp_path / METRICS_FILE).open("a") as file:
        file.write('{"step": 20, "spl')
    assert [line["step"] for line in read_metrics(tmp_path)] == [5, 10, 15]
    with MetricsLog(tmp_path, 10) as log:
        log.write(15, "train", {"loss": 0.5})
    assert [(line["step"], line["loss"]) for line in read_metrics(tmp_path)] == [
        (5, 5.0),
        (10, 10.0),
        (15, 0.5),
    ]


def test_lines_wait_while_the_disk_is_full(tmp_path):
    """TensorBoard's thread once died of it, and the eleventh event after that waited for ever."""
    said = []
    with MetricsLog(tmp_path, 0, said.append) as log:
        for step in range(40):
            full = 3 <= step < 30 or step == 35
            # A part of the first line that does not fit is written.
            size = (tmp_path / METRICS_FILE).stat().st_size + 5
            with full_disk(size) if full else nullcontext():
                log.write(step, "train", {"loss": float(step)})
    assert [(line["step"], line["loss"]) for line in read_metrics(tmp_path)] == [
        (step, float(step)) for step in range(40)
    ]
    assert said == [f"warning: cannot write metrics in {tmp_path}: File too large"] * 2
    (tmp_path / "other").mkdir()
    with full_disk(1), MetricsLog(tmp_path / "other", 0, said.append) as log:
        log.write(1, "train", {"loss": 1.0})
    assert read_metrics(tmp_path / "other") == [] and len(said) == 3


def test_no_metrics_yet(tmp_path):
    assert read_metrics(tmp_path) == []


def show(terminal):
    output = io.StringIO()
    console = Console(file=output, force_terminal=terminal, width=100)
    with ConsoleReport(console, 90, 100) as report:
        for step in (91, 92):
            report.advance(step, 3.25, 1e-3, 1000.0)
            report.logged(step)
        report.line("validation after step 92")
    return output.getvalue()


def test_plain_lines_where_there_is_no_terminal():
    lines = show(terminal=False).splitlines()
    assert len(lines) == 3
    assert lines[0].startswith("step 91/100  loss 3.2500  lr 1.00e-03  ")
    assert "tokens/s" in lines[0] and lines[0].endswith(" left")
    assert lines[2] == "validation after step 92"


def test_a_progress_bar_on_a_terminal():
    shown = show(terminal=True)
    assert "92/100" in shown and "loss 3.2500" in shown and "left" in shown
    assert "step 91/100" not in shown


def test_time_between_steps_is_not_counted(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    report = ConsoleReport(Console(file=io.StringIO()), 0, 10)
    now[0] = 2.0
    with report.paused("evaluating"):
        now[0] = 100.0
    now[0] = 101.0
    assert report.clock() == 3.0
    report.advance(1, 1.0, 1.0, 30.0)
    assert "10 tokens/s  0:27 left" in report._status
