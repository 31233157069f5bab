"""The tools that keep chapters true: execution, stamping, numbers in the text, the Colab cell."""

import sys
import types

import execute
import nbformat
import prose_numbers
import pytest
import scoreboard_picture
import status
from IPython.core.inputtransformer2 import TransformerManager
from nbclient.exceptions import CellExecutionError
from PIL import Image

import book
import d2ltvm
from d2ltvm.system import colab


def notebook(*sources):
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    return nbformat.v4.new_notebook(cells=cells)


def test_a_notebook_is_run_stamped_and_written(tmp_path):
    path = tmp_path / "one.ipynb"
    nbformat.write(notebook("print(1)\nprint(2)", "1 + 1"), path)
    assert execute.main([str(path)]) == 0
    done = book.read(path)
    assert done.cells[0].source == book.colab_cell()
    assert done.cells[1].outputs[0].text == "1\n2\n"
    assert done.cells[2].outputs[0].data["text/plain"] == "2"
    assert set(done.metadata["d2ltvm"]) == {"executed", "seconds", "python", "versions"}


def test_a_notebook_that_fails_is_left_as_it_was(tmp_path, capsys):
    path = tmp_path / "two.ipynb"
    nbformat.write(notebook("print(1)", "1 / 0"), path)
    before = path.read_text()
    assert execute.main([str(path)]) == 1
    assert path.read_text() == before
    assert "ZeroDivisionError" in capsys.readouterr().err
    with pytest.raises(CellExecutionError):
        execute.run(path)


def test_pieces_of_one_stream_are_joined():
    pieces = [("stdout", "a\n"), ("stdout", "b\n"), ("stderr", "c\n"), ("stdout", "d\n")]
    outputs = [nbformat.v4.new_output("stream", name=name, text=text) for name, text in pieces]
    joined = [(o.name, o.text) for o in execute.merged(outputs)]
    assert joined == [("stdout", "a\nb\n"), ("stderr", "c\n"), ("stdout", "d\n")]


def test_a_number_in_the_text_is_held_to_its_expression():
    good = "it has 132<!--= chip('H200').sms:.0f --> of them"
    bad = good.replace("132", "131")
    assert prose_numbers.disagreements(good) == []
    assert prose_numbers.disagreements(bad) == [("131", "132", "chip('H200').sms")]
    assert prose_numbers.fixed(bad) == good


def test_a_number_of_a_record_that_is_not_there_says_so():
    with pytest.raises(d2ltvm.MissingError, match="no record 'nothing/here'"):
        prose_numbers.disagreements("5<!--= rec('nothing/here')['a'][0]:.0f -->")


def test_the_status_page_has_every_chapter_and_record():
    text = "\n".join([*status._chapters(), *status._records()])
    for path in book.chapters():
        assert book.title(book.read(path)) in text
    for path in (book.ROOT / "book/measurements").glob("*/*.json"):
        assert f"| {path.stem}/" in text


class Shell:
    """Stands in for IPython in Colab: writes down what a cell tells the system to do."""

    def __init__(self):
        self.commands = []

    def system(self, command):
        self.commands.append(command)


def run_colab_cell(monkeypatch):
    """Run the first cell of the chapters with the shell and the preparation faked."""
    shell, prepared = Shell(), []
    monkeypatch.setattr(colab, "prepare", lambda: prepared.append(True))
    monkeypatch.setattr(sys, "path", list(sys.path))
    source = TransformerManager().transform_cell(book.colab_cell())
    exec(source, {"get_ipython": lambda: shell})
    return shell.commands, prepared


def test_the_colab_cell_does_nothing_elsewhere(monkeypatch):
    monkeypatch.delitem(sys.modules, "google.colab", raising=False)
    assert run_colab_cell(monkeypatch) == ([], [])


def test_the_colab_cell_fetches_installs_and_prepares(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    (clone, install), prepared = run_colab_cell(monkeypatch)
    assert "git clone -q --depth 1 https://" in clone
    assert install == "pip install -q -r /content/book/requirements-colab.txt"
    assert prepared == [True]
    assert (book.ROOT / "requirements-colab.txt").exists()


def test_the_picture_of_the_readme_shows_the_records():
    assert Image.open(scoreboard_picture.PICTURE).text["Description"] == (
        scoreboard_picture.content()
    ), "run `make numbers`"


def test_the_numbers_of_the_readme_are_those_of_the_records():
    text = (book.ROOT / "README.md").read_text()
    assert text.count("<!--=") > 10
    assert prose_numbers.disagreements(text) == []


def test_the_readmes_example_runs(capsys):
    text = (book.ROOT / "README.md").read_text()
    exec(text.split("```python\n")[1].split("```")[0], {})
    assert "__global__" in capsys.readouterr().out


def test_versions_agree():
    for name in ("pyproject.toml", "CITATION.cff"):
        assert d2ltvm.__version__ in (book.ROOT / name).read_text()
