"""The notebooks run from top to bottom, and are committed with what they showed."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("default")
def test_runs_at_a_small_setting(path, monkeypatch, tmp_path):
    """The asserts in the cells are the test."""
    monkeypatch.setenv("NOTEBOOK_STEPS", "20")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    root = str(path.parents[1])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": path.parent}}).execute()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_committed_with_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in shown)
    assert not any(output["output_type"] == "error" for output in shown)
