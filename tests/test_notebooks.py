"""What every chapter must be. Each rule is also shown to fail on a chapter that breaks it."""

import ast
import copy
import dataclasses
import re

import cells
import nbformat
import prose_numbers
import pytest
import skeletons

import book

pytestmark = pytest.mark.slow

CHAPTERS = book.chapters()
LONGEST_CELL, LONGEST_KERNEL = 40, 150
MACHINE_PATH = re.compile(r"(?<![\w.])/(work|root|home|Users|mnt|opt|tmp)/")
UNITS = r"(?:TB/s|GB/s|TFLOPS|GFLOPS|µs|ns|ms)\b"
MEASURED = re.compile(rf"\d[\d.,]*(?P<source><!--.*?-->)?(?: |\n)?{UNITS}", re.S)


def executed(notebook):
    """Every code cell was run, in order, and none failed."""
    cells = book.code_cells(notebook)
    counts = [cell.execution_count for cell in cells]
    if counts != list(range(1, len(cells) + 1)):
        yield f"cells were run in the order {counts}"
    for cell in cells:
        if any(output.output_type == "error" for output in cell.outputs):
            yield f"a cell failed: {cell.source[:60]}"


def strict(notebook):
    """At least half of the cells with output are those that pytest --nbval compares."""
    shown = [cell for cell in book.code_cells(notebook) if cell.outputs]
    compared = [cell for cell in shown if "nbval-ignore-output" not in book.tags(cell)]
    if len(compared) < max(2, 0.5 * len(shown)):
        yield f"only {len(compared)} of {len(shown)} cells with output are compared"


def short(notebook):
    """No cell is longer than a screen, but for a kernel that cannot be taken apart."""
    for cell in book.code_cells(notebook):
        lines = len(cell.source.splitlines())
        if lines > (LONGEST_KERNEL if "kernel" in book.tags(cell) else LONGEST_CELL):
            yield f"{lines} lines: {cell.source[:60]}"


def captioned(notebook):
    """Every picture has a name, a caption and a text for those who cannot see it."""
    for cell in book.code_cells(notebook):
        if any("image/png" in output.get("data", {}) for output in cell.outputs):
            shown = cell.metadata.get("mystnb", {})
            figure, image = shown.get("figure", {}), shown.get("image", {})
            if not (figure.get("name") and figure.get("caption") and image.get("alt")):
                yield f"no name, caption or alt text: {cell.source[:60]}"
            if re.search(r"\]\(|\{(numref|cite|ref)\}", figure.get("caption", "")):
                yield f"a link in a caption, which has too little contrast: {cell.source[:60]}"


def ending(notebook):
    """A summary, and three exercises or more, each with a folded solution that was run."""
    sections, current = {}, None
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            for heading in re.findall(r"^##+ (.+)$", cell.source, re.M):
                current = heading
                sections[current] = []
        elif current:
            sections[current].append(cell)
    exercises = {h: under for h, under in sections.items() if h.startswith("Exercise ")}
    if "Summary" not in sections:
        yield "no summary"
    if len(exercises) < 3:
        yield f"only {len(exercises)} exercises"
    for heading, under in exercises.items():
        if not any("hide-cell" in book.tags(cell) and cell.outputs for cell in under):
            yield f"{heading} has no folded solution with output"


def stamped(notebook):
    """The first cell is the one for Colab, and a page does not show it."""
    first = notebook.cells[0]
    if first.source != book.colab_cell() or "remove-cell" not in book.tags(first):
        yield "the first cell is not the Colab cell: run `make notebooks`"


def portable(notebook):
    """No path of somebody's machine, in code or in output."""
    for cell in notebook.cells:
        for output in [cell.source, *map(str, cell.get("outputs", []))]:
            text = re.sub(r"'image/png': '[^']*'", "", output.replace("/content/book", ""))
            if found := MACHINE_PATH.search(text):
                yield f"a path of a machine: {text[found.start() : found.start() + 60]}"


def numbers_agree(notebook):
    """Numbers in the text are those of the records."""
    outputs = book.outputs(notebook)
    for cell in markdown(notebook):
        for shown, expected, expression in prose_numbers.disagreements(cell.source, outputs):
            yield f"{shown} should be {expected}: {expression}; run `make numbers`"


def numbers_are_not_copied(notebook):
    """A long number in an expression is one that the page computes with, or prints."""
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    page = "\n".join([*code, book.outputs(notebook)])
    for cell in markdown(notebook):
        for number in prose_numbers.copied(cell.source, page):
            yield f"{number} was copied into the text: use `printed`, `rec` or arithmetic"


def numbers_have_sources(notebook):
    """A number with the unit of a measurement says what it comes from, or that it is given."""
    for cell in markdown(notebook):
        text = re.sub(r"`[^`]*`|^\|.*$", "", cell.source, flags=re.M)
        for found in MEASURED.finditer(text):
            if not found["source"]:
                yield f"no source: {found.group()!r}"


def same_schedules(notebook):
    """A schedule that a chapter defines is the one that the package has."""
    for cell, _ in cells.rewrite(notebook):
        names = ", ".join(name for name, *_ in cells.definitions(cell.source))
        yield f"{names}: not as in the package: run `make cells`"


def same_skeletons(notebook):
    """A skeleton is what its solution says, prints "not yet", and the solution "solved"."""
    try:
        for cell, _ in skeletons.rewrite(notebook):
            yield f"not its solution's skeleton: run `make cells`: {cell.source[:60]}"
        for pair in skeletons.pairs(notebook):
            for cell, verdict in zip(pair, ("not yet:", "solved:"), strict=True):
                printed = "".join(output.get("text", "") for output in cell.outputs)
                if not re.search(rf"^{verdict}", printed, re.M):
                    yield f"does not print {verdict!r}: {cell.source[:60]}"
    except ValueError as error:
        yield str(error)


def exercises_asked(notebook):
    """Before each skeleton stands what it asks, under a heading; a merge has lost one before."""
    asked = False
    for cell in notebook.cells:
        tags = cell.metadata.get("tags", [])
        asked |= cell.cell_type == "markdown" and "### Exercise" in cell.source
        if "skeleton" in tags and not asked:
            yield f"nothing is asked before the skeleton: {cell.source[:60]}"
        asked &= "solution" not in tags


def markdown(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "markdown"]


RULES = (
    executed,
    strict,
    short,
    captioned,
    ending,
    stamped,
    portable,
    numbers_agree,
    numbers_are_not_copied,
    numbers_have_sources,
    same_schedules,
    same_skeletons,
    exercises_asked,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter(path, rule):
    assert list(rule(book.read(path))) == []


def test_every_notebook_is_in_the_table_of_contents():
    there = set((book.ROOT / "book").rglob("*.ipynb"))
    assert there == set(CHAPTERS)


def test_the_first_page_names_every_chapter_in_order():
    """Its table has a row with a question for each, by its title."""
    first, *others = CHAPTERS
    text = "\n".join(cell.source for cell in markdown(book.read(first)))
    rows = re.findall(r"^\| \[(.+?)\]\((.+?)\) \| .+\? \|$", text, re.M)
    expected = []
    for path in others:
        title = re.match(r"# (.+)", markdown(book.read(path))[0].source)[1]
        expected.append((title, path.relative_to(first.parent).as_posix()))
    assert rows == [row for row in expected if not row[1].startswith("appendix/")]


def test_each_part_has_an_exercise_to_debug_and_one_to_beat():
    """A part is a folder; what is only looked up, the appendix, may do without."""
    kinds = {}
    for path in CHAPTERS:
        found = re.findall(r"^### Exercise \d+: (\w+)$", texts(path), re.M)
        kinds.setdefault(path.parent.name, set()).update(found)
    parts = {part for part in kinds if part not in ("book", "appendix")}
    assert len(parts) >= 10
    assert not {part for part in parts if not {"debug", "beat"} <= kinds[part]}


def figures_and_links():
    """For each chapter its figures' names, its headings' anchors and its links to others'."""
    for path in CHAPTERS:
        notebook = book.read(path)
        text = texts(path)
        shown = (cell.metadata.get("mystnb", {}) for cell in book.code_cells(notebook))
        named = [told["figure"]["name"] for told in shown if "figure" in told]
        anchors = {anchor(title) for title in re.findall(r"^#{1,3} +(.+)$", text, re.M)}
        anchors |= set(re.findall(r"^\(([\w-]+)\)=$", text, re.M))
        links = re.findall(r"\]\(([\w/.-]*)\.ipynb#([\w-]+)\)", text)
        yield path, named, anchors, links


def anchor(title):
    """The anchor that MyST gives to a heading."""
    return re.sub(r"[^\w\- ]", "", title.strip().lower()).replace(" ", "-")


def test_a_figure_has_a_name_of_its_own_and_a_link_its_heading():
    found = list(figures_and_links())
    named = [name for _, names, _, _ in found for name in names]
    assert len(named) > 100 and not {n for n in named if named.count(n) > 1}
    anchors = {path.resolve(): known for path, _, known, _ in found}
    broken = [
        f"{path.name}: {chapter}#{to}"
        for path, _, _, links in found
        for chapter, to in links
        if to not in anchors[(path.parent / f"{chapter}.ipynb").resolve()]
    ]
    assert sum(len(links) for *_, links in found) > 50
    assert not broken


def test_a_link_leads_to_a_page_that_is_there():
    """The build says so too, but later."""
    found = [
        (path, to)
        for path in CHAPTERS
        for to in re.findall(r"\]\(([\w./-]+\.(?:ipynb|md))[#)]", texts(path))
    ]
    assert len(found) > 500
    assert not [(path.name, to) for path, to in found if not (path.parent / to).exists()]


def texts(path):
    """All that a chapter says between its cells."""
    return "\n".join(cell.source for cell in markdown(book.read(path)))


def test_the_package_says_which_chapter_a_schedule_is_from():
    """Every function that a chapter defines names it, and no other one does."""
    defined = {
        (name, cells.chapter_name(path))
        for path in CHAPTERS
        for cell in cells.cells(book.read(path))
        for name, *_ in cells.definitions(cell.source)
    }
    named = {
        (name, chapter)
        for name, functions in cells.package().items()
        for function in functions
        for chapter in function.chapters
    }
    assert named == defined


USED = re.compile(r"# (?:From|Used in) (.+)\.")


def names_in(node):
    """What a function refers to by its name, and the names of decorators inside."""
    for inside in ast.walk(node):
        if isinstance(inside, ast.Name):
            yield inside.id
        elif isinstance(inside, ast.FunctionDef):
            yield from (mark.attr for mark in inside.decorator_list if hasattr(mark, "attr"))


def without_a_chapter(folder):
    """Public schedules and kernels of a folder with no comment that names a chapter that is there.

    A schedule has its arguments `checked`, or says that it returns one; a kernel has a PrimFunc in
    it, or is made by another one.
    """
    sources = {path: path.read_text() for path in sorted(folder.glob("*.py"))}
    every = {
        node.name: (path, node)
        for path, source in sources.items()
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
    }
    words = {name: set(names_in(node)) for name, (_, node) in every.items()}
    made = {name for name, found in words.items() if "prim_func" in found}
    while more := {name for name in every if name not in made and words[name] & made}:
        made |= more
    for name, (path, node) in every.items():
        marks = {ast.unparse(mark) for mark in node.decorator_list}
        returned = ast.unparse(node.returns) if node.returns else ""
        if name.startswith("_") or not (
            name in made or "checked" in marks or "Schedule" in returned
        ):
            continue
        first = min(part.lineno for part in (node, *node.decorator_list))
        comment = USED.fullmatch(sources[path].splitlines()[first - 2])
        chapters = re.split(", | and ", comment[1]) if comment else [""]
        if not all((book.ROOT / f"book/{chapter}.ipynb").exists() for chapter in chapters):
            yield name


@pytest.mark.parametrize("folder", cells.FOLDERS)
def test_each_schedule_and_kernel_says_which_chapter_it_is_from(folder):
    assert list(without_a_chapter(book.ROOT / "d2ltvm" / folder)) == []


def test_schedules_and_kernels_without_a_chapter_are_found(tmp_path):
    """One of no chapter, one of none that there is, and kernels that other functions make."""
    (tmp_path / "some.py").write_text("""
@checked
def bare(n): ...
# Used in memory/nowhere.
def lost(n) -> Schedule: ...
# From memory/matmul and memory/transpose.
@checked
def known(n): ...
def _inner(n):
    @T.prim_func
    def main(): ...
    return main
def outer(n):
    return _inner(n)
def helper(n): ...
""")
    assert list(without_a_chapter(tmp_path)) == ["bare", "lost", "outer"]


def test_a_schedule_that_the_package_lacks():
    with pytest.raises(ValueError, match="nobody is 0 times in the package; expected one"):
        cells.rewritten("def nobody():\n    pass", set())


def test_what_cells_writes_and_what_it_leaves():
    """Names of the reader's surface get a prefix but where the chapter imports them."""
    function = cells.Function(
        "def f(x):  # noqa: E999\n    return '× and', g(x, h)  # a remark",
        frozenset({"check", "g", "h"}),
        (),
    )
    shown = cells.for_a_reader(function, set())
    assert shown == 'def f(x):\n    return "× and", g(x, h)  # a remark'
    text = function.text.replace("g(x, h)", "check(x, build(h))")
    names = dataclasses.replace(function, text=text, imported=frozenset({"check", "build"}))
    assert "d2ltvm.check(x, d2ltvm.build(h))" in cells.for_a_reader(names, set())
    assert '  return "× and", check(x, d2ltvm.build(h))' in cells.for_a_reader(names, {"check"})
    source = "before = 1\n\n\n@old\ndef largest_divisor():\n    pass\n\n\nafter = 2  # stays"
    got = cells.rewritten(source, set())
    assert got.startswith("before = 1\n\n\ndef largest_divisor(") and "@old" not in got
    assert got.endswith("\n\n\nafter = 2  # stays")


def test_a_cell_has_no_types_but_those_that_tvm_reads():
    typed = "def f(n: int, a: str = 'é', *b: int, c: int = 2,\n) -> list[int]:\n    return g(n)\n"
    assert cells.untyped(typed) == "def f(n, a='é', *b, c=2\n):\n    return g(n)\n"
    kernel = "def f(n):\n    @T.prim_func\n    def main(a: T.handle):\n        pass\n"
    assert cells.untyped(kernel) == kernel
    assert cells.untyped(kernel.replace("(n)", "(n: int)")) == kernel


def first_with(notebook, tag):
    return next(cell for cell in notebook.cells if tag in book.tags(cell))


def picture(notebook):
    return next(
        cell
        for cell in book.code_cells(notebook)
        if any("image/png" in output.get("data", {}) for output in cell.outputs)
    )


def run_out_of_order(notebook):
    book.code_cells(notebook)[2].execution_count = 99


def fail(notebook):
    error = nbformat.v4.new_output("error", ename="E", evalue="", traceback=[])
    book.code_cells(notebook)[2].outputs = [error]


def ignore_everything(notebook):
    for cell in book.code_cells(notebook):
        cell.metadata["tags"] = ["nbval-ignore-output"]


def write_at_length(notebook):
    book.code_cells(notebook)[2].source = "pass\n" * (LONGEST_CELL + 1)


def forget_the_alt_text(notebook):
    del picture(notebook).metadata["mystnb"]["image"]


def link_in_a_caption(notebook):
    picture(notebook).metadata["mystnb"]["figure"]["caption"] += " See {numref}`fig-steps`."


def forget_the_caption(notebook):
    picture(notebook).metadata["mystnb"]["figure"]["caption"] = ""


def forget_the_summary(notebook):
    for cell in markdown(notebook):
        cell.source = cell.source.replace("## Summary", "## Something")


def forget_a_solution(notebook):
    notebook.cells.remove(first_with(notebook, "solution"))


def change_the_first_cell(notebook):
    notebook.cells[0].source += "\n!pip install something"


def print_a_path(notebook):
    book.code_cells(notebook)[2].outputs = [
        nbformat.v4.new_output("stream", text="/" + "home/somebody/book")
    ]


def misquote(notebook):
    cell = next(cell for cell in markdown(notebook) if "<!--=" in cell.source)
    cell.source = re.sub(r"[\d.]+%?<!--=", "123456<!--=", cell.source, count=1)


def copy_a_number(notebook):
    markdown(notebook)[0].source += "\nIt takes 17.3<!--= 17.3123:.1f --> µs."


def state_without_source(notebook):
    markdown(notebook)[0].source += "\nIt takes 17.3 µs."


def change_a_schedule(notebook):
    cell = first_with(notebook, "schedules")
    cell.source = cell.source.replace("256", "8")


SOLUTION = """\
def f(x):
    # instead of: y = x
    y = x + 1
    z = y
    # end
    return y * 2  # instead of: return y


d2ltvm.verdict({"right": f(1) == 4})"""
SKELETON = """\
def f(x):
    # your turn
    y = x
    return y  # your turn


d2ltvm.verdict({"right": f(1) == 4})"""


def exercise(skeleton=SKELETON, printed="not yet: right", tags=("hide-cell", "solution")):
    """A notebook with an exercise's skeleton and solution."""
    cells = []
    for source, text, its in (
        (skeleton, printed, ("skeleton",)),
        (SOLUTION, "solved: it holds", tags),
    ):
        output = nbformat.v4.new_output("stream", text=text + "\n")
        cells.append(
            nbformat.v4.new_code_cell(source, outputs=[output], metadata={"tags": list(its)})
        )
    return nbformat.v4.new_notebook(cells=cells)


def test_a_skeleton_comes_from_its_solution():
    assert skeletons.skeleton(SOLUTION) == SKELETON
    assert list(same_skeletons(exercise())) == []
    for wrong, reason in [
        (exercise("pass"), "run `make cells`"),
        (exercise(printed="solved: it holds"), "does not print 'not yet:'"),
        (exercise(tags=()), "no solution behind the skeleton"),
        (exercise(tags=("solution",)), "is not folded"),
    ]:
        (said,) = same_skeletons(wrong)
        assert reason in said
    assert "nothing is asked" in next(exercises_asked(exercise()))
    heading = nbformat.v4.new_markdown_cell("### Exercise 1: predict")
    asked = nbformat.v4.new_notebook(cells=[heading, *exercise().cells])
    assert list(exercises_asked(asked)) == []
    twice = nbformat.v4.new_notebook(cells=[*asked.cells, *exercise().cells])
    assert len(list(exercises_asked(twice))) == 1
    for text in ("pass", "    # instead of: pass\n    a = 1"):
        with pytest.raises(ValueError, match="expected `# instead of"):
            skeletons.skeleton(text)
    with pytest.raises(ValueError, match=r"has a wrong line, .*; expected Python"):
        skeletons.skeleton("f(\n    1)  # instead of: g(1)")


@pytest.mark.parametrize(
    ("rule", "spoil"),
    [
        (executed, run_out_of_order),
        (executed, fail),
        (strict, ignore_everything),
        (short, write_at_length),
        (captioned, forget_the_alt_text),
        (captioned, forget_the_caption),
        (captioned, link_in_a_caption),
        (ending, forget_the_summary),
        (ending, forget_a_solution),
        (stamped, change_the_first_cell),
        (portable, print_a_path),
        (numbers_agree, misquote),
        (numbers_are_not_copied, copy_a_number),
        (numbers_have_sources, state_without_source),
        (same_schedules, change_a_schedule),
    ],
)
def test_each_rule_can_fail(rule, spoil):
    notebook = copy.deepcopy(book.read(book.ROOT / "book/elementwise/vector_add.ipynb"))
    spoil(notebook)
    assert list(rule(notebook))
