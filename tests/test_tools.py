"""The tools that keep chapters true: execution, stamping, numbers in the text, the Colab cell."""

import ast
import html
import os
import re
import subprocess
import sys
import textwrap
import types

import execute
import expressions
import nbformat
import new_chapter
import number_picture
import prose_numbers
import pytest
import scoreboard_picture
import status
import test_notebooks as rules
from IPython.core.inputtransformer2 import TransformerManager
from nbclient.exceptions import CellExecutionError
from PIL import Image

import book
import d2ltvm
from d2ltvm.system import colab

pytestmark = pytest.mark.slow


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


def test_pieces_of_one_stream_are_joined(tmp_path):
    path = tmp_path / "pieces.ipynb"
    lines = [
        "import sys, time",
        "for k in 'abc':",
        "    print(k, flush=True)",
        "    time.sleep(0.3)",
    ]
    lines += ["    print(k.upper(), file=sys.stderr, flush=True)", "    time.sleep(0.3)"]
    nbformat.write(notebook("\n".join(lines)), path)
    (cell,) = execute.run(path).cells[1:]
    joined = [(o.name, o.text) for o in cell.outputs]
    assert joined == [("stdout", "a\nb\nc\n"), ("stderr", "A\nB\nC\n")]


def test_a_number_in_the_text_is_held_to_its_expression():
    good = "it has 132<!--= chip('H200').sms:.0f --> of them"
    bad = good.replace("132", "131")
    assert prose_numbers.disagreements(good) == []
    assert prose_numbers.disagreements(bad) == [("131", "132", "chip('H200').sms")]
    assert prose_numbers.fixed(bad) == good


def test_a_number_in_the_text_may_be_one_that_the_page_prints():
    page = "FMAs: 1,024 of 2,048\nloads: 12\nFMAs: 1,024 of 9"
    assert prose_numbers.disagreements("1,024<!--= printed('FMAs'):,.0f -->", page) == []
    wrong = "1,000<!--= printed('FMAs:') - printed('loads'):,.0f -->"
    assert prose_numbers.fixed(wrong, page).startswith("1,012<!--")
    for expression in ("printed('FMAs', 2)", "printed('stores')", "printed('loads', 2)"):
        with pytest.raises(ValueError, match="expected a line of the page's outputs with these"):
            prose_numbers.disagreements(f"1<!--= {expression}:.0f -->", page)


def test_a_long_number_that_the_page_does_not_have_is_named():
    text = "1<!--= 51.2341 * 1024 / 3 - rec('a/b').at('c', 12345):.0f -->, 2<!--= 98765:.0f -->"
    assert list(prose_numbers.copied(text, "n = 1024, 512,341 bytes")) == ["98765"]


def test_a_number_of_a_record_that_is_not_there_says_so():
    with pytest.raises(d2ltvm.MissingError, match="no record 'nothing/here'"):
        prose_numbers.disagreements("5<!--= rec('nothing/here')['a'][0]:.0f -->")


def test_the_status_page_has_every_chapter_and_record():
    text = "\n".join([*status._chapters(), *status._records()])
    for path in book.chapters():
        assert book.title(book.read(path)) in text
    for path in (book.ROOT / "book/measurements").glob("*/*.json"):
        assert f"| {path.stem}/" in text


@pytest.mark.parametrize(
    ("expression", "comes_to"),
    [
        ("1 + 2*3 - 4/8", 6.5),
        ("7 // 2 + 7 % 2", 4),
        ("-(2**10)", -1024),
        ("12*2**26", 12 * 2**26),
        ("max(1, 2) - min(3, 4) + abs(-5)", 4),
        ("chip('H200').sms * chip(\"T4\").boost_ghz", 132 * 1.59),
        ("median((1, 2, 9)) + percentile((0, 10), 90)", 11),
        ("swing((2, 3))", 0.5),
        ("swing(running_means((1, 3, 5), 2))", 1),
        ("number_above((1, 2, 3), 1)", 2),
        ("(1, 2, 3)[1:][-1]", 3),
    ],
)
def test_arithmetic_is_evaluated(expression, comes_to):
    assert expressions.evaluate(expression) == pytest.approx(comes_to, rel=1e-15)


def test_an_expression_takes_numbers_from_records():
    record, x = d2ltvm.load_record("vector_add/bandwidth"), 2**26
    for expression, comes_to in (
        ('rec("vector_add/bandwidth").at("PyTorch", 2**26)', record.at("PyTorch", x)),
        ('rec("vector_add/bandwidth")["PyTorch"][-1]', record["PyTorch"][-1]),
        ('max(rec("vector_add/bandwidth").values)', 2**28),
        ('max(beyond(rec("vector_add/bandwidth"), "PyTorch", 2**27))', record.at("PyTorch", 2**28)),
        ('rec("vector_add/bandwidth")["PyTorch"].reshape(-1, 1).mean(0)', record["PyTorch"].mean()),
    ):
        assert expressions.evaluate(expression) == pytest.approx(comes_to, rel=1e-15)


REFUSED = [
    "__import__('os').system('true')",
    "().__class__",
    "(1).__class__.__mro__",
    "'a'.join(('b', 'c'))",
    "''.__class__.__base__.__subclasses__()",
    "rec.__globals__",
    "max.__self__",
    "chip('H200').__class__",
    "chip('H200').__dict__['sms']",
    "rec('vector_add/bandwidth').__init__",
    "rec('vector_add/bandwidth').series",
    "rec('vector_add/bandwidth').values.tofile('made')",
    "rec('vector_add/bandwidth').values.dump('made')",
    "open('made', 'w')",
    "eval('1')",
    "(lambda: 1)()",
    "max(x for x in (1, 2))",
    "[x for x in (1, 2)][0]",
    "{1: 2}[1]",
    "f'{1}'",
    "1 if 1 else 2",
    "1 < 2",
    "1 and 2",
    "not 1",
    "(x := 3)",
    "max(1, 2, key=abs)",
    "max(*(1, 2))",
    "max",
    "np.ones(3)[0]",
    "1 << 10**6",
    "'a' * 10**9",
    "('a', 'b') * 2",
    "2j",
    "...",
    "None",
]


@pytest.mark.parametrize("expression", REFUSED)
def test_what_is_not_arithmetic_on_records_is_refused(expression, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"is refused; expected|is no number; expected"):
        expressions.evaluate(expression)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    "expression",
    ["10**10**8", "9**9**9**9", "(10**6)**65", "1000001**2", "0.5**-65", "1e300*1e300",
     "running_means((1, 2), 10**9)", "-" * 3000 + "1", "(" * 300 + "1" + ")" * 300, "~1",
     "1/0", "(1, 2)[2]", "rec('vector_add/bandwidth')['nobody'][0]", "1 +", "(1, 2)", "(-8)**0.5",
     "import os", "chip('nothing').sms", "'one'", ""],
)  # fmt: skip
def test_what_is_too_large_or_no_number_is_one_line(expression):
    with pytest.raises(ValueError) as caught:
        prose_numbers.value(expression, ".0f")
    assert str(caught.value).startswith(f"{expression}: ") and "\n" not in str(caught.value)


def test_every_number_of_the_book_is_arithmetic_on_records():
    """Those of the chapters are worked out by test_notebooks; here, that none is passed over."""
    for path in [*book.chapters(), book.ROOT / "README.md"]:
        for text in prose_numbers.texts(path):
            assert text.count("<!--=") == len(prose_numbers.NUMBER.findall(text)), path
            for match in prose_numbers.NUMBER.finditer(text):
                names = {
                    n.id for n in ast.walk(ast.parse(match["expression"])) if type(n) is ast.Name
                }
                assert names <= set(expressions.FUNCTIONS), path


@pytest.mark.parametrize(
    "text", ["5<!--= 2 + 3 -->", "5 <!--= 2 + 3:.0f -->", "5<!--= 2 +\n3:.0f -->"]
)
def test_a_comment_that_would_be_passed_over_is_named(text):
    with pytest.raises(ValueError, match=r"<!--= 2 \+.*: expected 'number<!--= expression:format"):
        prose_numbers.disagreements(f"4<!--= 2 + 2:.0f --> and {text}")


@pytest.mark.parametrize("form", ["999999999.2f", ".99999f", "d", "s", "", ">10.2f", "{x}"])
def test_a_format_that_is_not_of_a_number_is_refused(form):
    with pytest.raises(ValueError, match="the format is"):
        prose_numbers.value("1 + 1", form)


@pytest.fixture
def small_book(tmp_path, monkeypatch):
    """A book of one chapter and a README, for the tool that checks the numbers."""
    chapter = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# One\n\nno number")])
    nbformat.write(chapter, tmp_path / "one.ipynb")
    (tmp_path / "README.md").write_text("131<!--= chip('H200').sms:.0f --> SMs\n")
    monkeypatch.setattr(book, "ROOT", tmp_path)
    monkeypatch.setattr(book, "chapters", lambda: [tmp_path / "one.ipynb"])
    return tmp_path


def test_numbers_are_checked_and_fixed(small_book, capsys):
    assert prose_numbers.main([]) == 1
    assert capsys.readouterr().out == "README.md: 131 should be 132: chip('H200').sms\n"
    assert prose_numbers.main(["--fix"]) == 0
    assert (small_book / "README.md").read_text().startswith("132<!--=")
    assert prose_numbers.main([]) == 0


@pytest.mark.parametrize(
    ("expression", "reason"),
    [("1/0", "division by zero"), ("10**10**8", "too large"), ("rec('no/such')[0]", "no record")],
)
def test_a_number_that_cannot_be_worked_out_is_named_with_its_file(
    small_book, capsys, expression, reason
):
    chapter = book.read(small_book / "one.ipynb")
    chapter.cells[0].source = f"# One\n\n5<!--= {expression}:.0f -->"
    book.write(small_book / "one.ipynb", chapter)
    before = (small_book / "one.ipynb").read_text()
    assert prose_numbers.main(["--fix"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("one.ipynb: ") and reason in line
    assert reason == "no record" or expression in line
    assert (small_book / "one.ipynb").read_text() == before
    assert (small_book / "README.md").read_text().startswith("132<!--=")  # which comes behind it


def full_disk(handle):
    raise OSError(28, "No space left on device")


def test_a_full_disk_leaves_a_notebook_whole(small_book, capsys, monkeypatch):
    chapter = book.read(small_book / "one.ipynb")
    chapter.cells[0].source = "# One\n\n5<!--= 2 + 2:.0f -->"
    book.write(small_book / "one.ipynb", chapter)
    before = {path: path.read_text() for path in small_book.iterdir()}
    monkeypatch.setattr(os, "fsync", full_disk)
    assert prose_numbers.main(["--fix"]) == 1
    assert {path: path.read_text() for path in small_book.iterdir()} == before
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2 and all("No space left" in line for line in lines)


def test_no_tool_writes_in_place():
    """They write by `files.write` and `book.write`, which write a file whole or not at all."""
    # These draw into memory first.
    pictures = [book.ROOT / "tools" / f"{name}_picture.py" for name in ("scoreboard", "number")]
    in_place = {"write_text", "write_bytes", "savefig", "dump"}
    for path in sorted((book.ROOT / "tools").glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                owner = ast.unparse(node.func.value)
                assert node.func.attr not in in_place or path in pictures, path
                assert (owner, node.func.attr) != ("nbformat", "write"), path


def test_what_cannot_be_run_is_one_line_and_those_behind_it_run(tmp_path, capsys):
    (tmp_path / "text.ipynb").write_text("no notebook")
    nbformat.write(notebook("import os; os._exit(1)"), tmp_path / "dies.ipynb")
    nbformat.write(notebook("print(1)"), tmp_path / "runs.ipynb")
    paths = [str(tmp_path / f"{name}.ipynb") for name in ("nope", "text", "dies", "runs")]
    assert execute.main(paths) == 1
    printed = capsys.readouterr()
    lines = [line for line in printed.err.splitlines() if line.startswith(str(tmp_path))]
    assert [line.split(":")[0] for line in lines] == paths[:3]
    assert "No such file" in lines[0] and "died" in lines[2]
    assert "Traceback" not in printed.err and printed.out.startswith(paths[3])


def test_stamping_writes_the_first_cell_and_nothing_else(tmp_path):
    path = tmp_path / "one.ipynb"
    old = notebook("the cell of an older release", "1 + 1")
    old.cells[0].metadata["tags"] = ["remove-cell"]
    old.cells[1].outputs = [nbformat.v4.new_output("stream", text="kept")]
    nbformat.write(old, path)
    assert execute.main(["--stamp", str(path)]) == 0
    new = book.read(path)
    assert new.cells[0].source == book.colab_cell() and new.cells[1:] == old.cells[1:]


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
    assert f"git clone -q --depth 1 -b v{d2ltvm.__version__} " in clone and "https://" in clone
    assert install == "pip install -q -r /content/book/requirements-colab.txt"
    assert prepared == [True]
    assert (book.ROOT / "requirements-colab.txt").exists()


def test_the_picture_of_the_readme_shows_the_records():
    assert Image.open(scoreboard_picture.PICTURE).text["Description"] == (
        scoreboard_picture.content()
    ), "run `make numbers`"


def test_the_picture_of_a_number_shows_its_record():
    text = html.unescape(number_picture.PICTURE.read_text())
    assert number_picture.content() in text, "run `make numbers`"


def test_the_examples_of_how_it_works_run(monkeypatch):
    """As they stand on the page: a schedule, where it is added, its test, and a measurement."""
    text = (book.ROOT / "book" / "how_it_works.md").read_text()
    blocks = re.findall(r"^( *)```python\n(.*?)^\1```", text, re.S | re.M)
    names = {}
    for _, block in blocks:
        exec(textwrap.dedent(block), names)
    assert names["cpu"].live and len(names["cpu"].series["TVM"]) == 2
    assert not hasattr(d2ltvm.schedules, "add_strided"), "the example needs a name of its own"
    monkeypatch.setattr(d2ltvm.schedules, "add_strided", names["add_strided"], raising=False)
    (sizes,) = names["test_add_strided"].pytestmark
    for n in sizes.args[1]:
        names["test_add_strided"](n)


def test_the_numbers_of_the_readme_are_those_of_the_records():
    text = (book.ROOT / "README.md").read_text()
    assert text.count("<!--=") > 10
    assert prose_numbers.disagreements(text) == []


def test_the_colab_cell_fetches_the_release_that_the_chapter_is_of(tmp_path):
    """A release is a tag: what comes to the branch later is not run by an older chapter."""
    source = tmp_path / "source"
    commit = "git -c user.name=a -c user.email=a@b.c commit -q --allow-empty -m"
    tag = f"v{d2ltvm.__version__}"
    made = f"git init -q {source} && cd {source} && {commit} one && git tag {tag} && {commit} two"
    subprocess.run(made, shell=True, check=True)
    (clone,) = [line for line in book.colab_cell().splitlines() if "git clone" in line]
    url = next(word for word in clone.split() if word.startswith("https://"))
    command = clone.replace(url, f"file://{source}").replace("/content/book", f"{tmp_path}/book")
    done = subprocess.run(command, shell=True, check=True, capture_output=True, text=True)
    assert done.stdout + done.stderr == ""
    log = ["git", "-C", str(tmp_path / "book"), "log", "--format=%s"]
    assert subprocess.run(log, capture_output=True, text=True).stdout == "one\n"


def test_the_readmes_example_runs(capsys):
    text = (book.ROOT / "README.md").read_text()
    exec(text.split("```python\n")[1].split("```")[0], {})
    assert "__global__" in capsys.readouterr().out


def test_a_new_chapter_has_all_but_its_words(device, tmp_path, monkeypatch, capsys):
    toc = tmp_path / "_toc.yml"
    toc.write_text((book.ROOT / "_toc.yml").read_text())
    monkeypatch.setattr(new_chapter, "TOC", toc)
    monkeypatch.setattr(book, "ROOT", tmp_path)
    monkeypatch.setattr(book, "colab_cell", lambda: "first = 1")
    (tmp_path / "book" / "elementwise").mkdir(parents=True)
    assert new_chapter.main(["elementwise/reduce", "Sums"]) == 0
    assert "on_a_cpu\n      - file: book/elementwise/reduce\n  - caption" in toc.read_text()
    written = execute.run(tmp_path / "book" / "elementwise" / "reduce.ipynb")
    assert book.title(written) == "Sums"
    for rule in (rules.executed, rules.strict, rules.ending, rules.stamped, rules.short):
        assert list(rule(written)) == [], rule


@pytest.mark.parametrize(
    ("name", "title", "said"),
    [
        ("nowhere/one", "One", "part is 'nowhere'; expected one of appendix,"),
        ("one", "One", "name is 'one'; expected part/name"),
        ("elementwise/vector_add", "One", "which is there; expected a new one"),
        ("elementwise/one", " ", "title is empty; expected"),
    ],
)
def test_a_new_chapter_says_what_it_expects(name, title, said, capsys):
    with pytest.raises(SystemExit):
        new_chapter.main([name, title])
    assert said in capsys.readouterr().err


def test_what_sphinx_read_is_kept_only_for_the_same_settings(tmp_path):
    import build_site

    def build(kept_for):
        build_site.forget(tmp_path, unless_for=kept_for)
        known = (tmp_path / "read").exists()
        assert not (tmp_path / "html").exists()
        (tmp_path / "html").mkdir(parents=True)
        (tmp_path / "read").touch()
        return known

    whole = tmp_path / build_site.KEPT_FOR
    assert not build("one")
    assert not build("one")  # the build before ended with a warning, or did not end
    whole.write_text("one")
    assert build("one")
    whole.write_text("one")
    assert not build("two")


def test_the_settings_of_the_site_are_its_tools_bibliography_and_versions(tmp_path):
    import build_site

    seen = {build_site.settings(tmp_path)}
    for name in ("_config.yml", "_toc.yml", "book/references.bib", "tools/mathml.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("1")
        seen.add(build_site.settings(tmp_path))
    assert len(seen) == 5


def test_a_page_that_says_the_same_keeps_its_time(tmp_path):
    path = tmp_path / "page.md"
    book.write_page(path, "one")
    os.utime(path, (1, 1))
    book.write_page(path, "one")
    assert path.stat().st_mtime == 1
    book.write_page(path, "one", after=2)
    assert path.stat().st_mtime > 1
    book.write_page(path, "two")
    assert path.read_text() == "two"


def test_a_tool_reads_its_arguments_or_refuses_them(capsys, monkeypatch):
    for path in sorted((book.ROOT / "tools").glob("*.py")):
        text = path.read_text()
        _, run, script = text.partition('if __name__ == "__main__":')
        refuses = "no_arguments(__doc__)" in script
        assert not run or refuses or "argv" in text or "ArgumentParser" in text, path.name
    for argument, code in (("--help", 0), ("all", 2)):
        monkeypatch.setattr(sys, "argv", ["tool", argument])
        with pytest.raises(SystemExit) as ended:
            book.no_arguments("Write something.")
        assert ended.value.code == code
    said = capsys.readouterr()
    assert "Write something." in said.out and "unrecognized arguments: all" in said.err
