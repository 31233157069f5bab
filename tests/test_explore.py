"""Figures that can be touched: their arithmetic is the package's, and bad values are refused."""

import html
import json
import re
from pathlib import Path
from urllib.parse import unquote

import explore_cases
import numpy as np
import pytest

import d2ltvm
from d2ltvm.analysis import in_flight, roofline
from d2ltvm.explore import scripts, widget
from d2ltvm.explore.widget import Explorer
from d2ltvm.schedules import matmul_naive, matmul_shared, matmul_tiled, matmul_warps, unrolled

ENGINE = scripts.Engine()
NAMES = ENGINE.call("names")


@pytest.mark.quick(6)
@pytest.mark.parametrize("name", explore_cases.CASES)
def test_a_model_says_what_the_package_says(name):
    case, rng = explore_cases.CASES[name], np.random.default_rng(1)
    inputs = [case.draw(rng) for _ in range(1000)]
    found = ENGINE.call("results", name, inputs)
    for arguments, result in zip(inputs, found, strict=True):
        assert case.shown(result) == case.expected(*arguments), arguments


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", NAMES)
def test_a_figure_can_be_drawn_in_any_state(name):
    fields, rng = ENGINE.call("described", name, None)["fields"], np.random.default_rng(2)
    for _ in range(50):
        state = {key: values[rng.integers(len(values))] for key, values in fields.items()}
        explorer = Explorer(name, state)
        assert json.loads(json.dumps(explorer.state)) == state
        wrong = re.findall(r"NaN|undefined|Infinity|null", explorer.markup + explorer.says)
        assert not wrong, state


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_starts_as_it_says_and_has_a_function(name):
    explorer = getattr(d2ltvm.explore, name)()
    described = ENGINE.call("described", name, None)
    assert explorer.state == described["start"]
    assert set(described["start"]) == set(described["fields"])
    bundle = explorer._repr_mimebundle_()
    assert bundle["text/plain"] == repr(explorer)
    assert f'id="explorer-{name}"' in bundle["text/html"] and "aria-label" in bundle["text/html"]


def test_a_figure_that_is_not_there_is_named():
    with pytest.raises(ValueError, match=r"name is 'bank'; expected one of .*banks"):
        Explorer("bank")


def test_colours_are_those_of_the_pictures():
    names = ("blue", "orange", "green", "pink", "sky", "amber", "black")
    script = (scripts.FOLDER / "ui" / "svg.js").read_text()
    style = scripts.STYLE.read_text()
    for name, colour in zip(names, d2ltvm.figures.COLOURS, strict=True):
        assert f'{name}: "{colour}"' in script
        light = re.search(rf"--d2l-{name}: (#\w+);", style)  # the first is that of light pages
        assert name == "black" or light[1] == colour.lower()


def test_values_that_a_figure_cannot_take_are_refused():
    with pytest.raises(ValueError, match=r"padding is 9; expected an integer from 0 to 8"):
        d2ltvm.explore.banks(padding=9)
    with pytest.raises(ValueError, match=r"columns is 7; expected one of 8, 16, 32, 64, 128"):
        d2ltvm.explore.banks(columns=7)
    with pytest.raises(TypeError, match=r"banks has no value 'stride'; expected one of columns,"):
        d2ltvm.explore.banks(stride=7)


def test_what_is_moved_in_a_notebook_comes_back(monkeypatch):
    kind, made = widget._widget_class(), []
    keep = lambda **given: made.append(kind(**given)) or made[-1]  # noqa: E731
    monkeypatch.setattr(widget, "_widget_class", lambda: keep)
    explorer = d2ltvm.explore.banks(padding=0)
    explorer._repr_mimebundle_()
    assert "32 wavefronts" in explorer.says
    made[0].state = {**explorer.state, "padding": 1}
    assert explorer.state["padding"] == 1 and "1 wavefront, no conflict" in explorer.says


def test_a_kernel_in_hand_shows_its_own_accesses():
    explorer = d2ltvm.explore.banks(matmul_tiled(256, 256, 256))
    requests = explorer.given["requests"]
    costs = [
        explore_cases.wavefronts(each["first"], each["width"], each["kind"]) for each in requests
    ]
    assert explorer.state["request"] == costs.index(max(costs))
    assert f"{max(costs)} wavefronts" in explorer.says
    assert requests[0]["name"] == "write A_shared (8 alike)"  # of an unrolled loop
    assert "read B_shared" in d2ltvm.explore.banks(matmul_shared(64, 64, 64)).markup
    with pytest.raises(ValueError, match="without shared memory"):
        d2ltvm.explore.banks(d2ltvm.schedules.one_thread_each(64))


@pytest.mark.slow
def test_a_product_in_hand_opens_with_its_tiles():
    sch = matmul_warps(1000, 1000, 1000)
    explorer, held = d2ltvm.explore.hierarchy(sch, "A100"), roofline.held(sch, "A100")
    state = explorer.state
    tile = (state["ey"] * state["ly"] * state["wy"], state["ex"] * 32 // state["ly"] * state["wx"])
    assert (*tile, state["depth"], state["stages"], state["n"]) == (128, 256, 16, 2, 1000)
    assert f"{held.resources.registers} registers each" in explorer.says
    assert f"{held.shared / 1024:.1f} KiB of shared memory" in explorer.says
    assert f"{held.occupancy.warps} of 64 warps, limited by {held.occupancy.limit}" in explorer.says
    with pytest.raises(ValueError, match="sch has 0 bytes of shared memory; expected tiles there"):
        d2ltvm.explore.hierarchy(matmul_naive(256, 256, 256))


@pytest.mark.slow
def test_a_grid_in_hand_opens_with_its_blocks_and_loads_in_hand_with_their_widths():
    sch = matmul_warps(1000, 1000, 1000)
    assert {"tiles": 32, "an_sm": 1}.items() <= d2ltvm.explore.waves(sch).state.items()
    explorer = d2ltvm.explore.latency(unrolled(2**20), "T4")
    found = in_flight.in_flight("T4", 1024, 400, 16, 4)
    expected = {"gpu": "T4", "threads": 1024, "width": 16, "loads": 4, "latency": 400}
    assert explorer.state == {**expected, "reads": "all"}
    assert f"{found.bytes / 1024:.1f} KiB under way" in explorer.says
    assert f"a load takes {found.wait:,.0f} ns" in explorer.says


def test_modules_become_one_script(tmp_path, monkeypatch):
    monkeypatch.setattr(scripts, "FOLDER", tmp_path)
    (tmp_path / "a.js").write_text('import { two as b } from "./b.js";\nexport const a = b + 1;\n')
    (tmp_path / "b.js").write_text("/** Two. */\nexport const two = 2;\n")
    text = scripts.bundle("a.js", "value")
    assert "const {two: b} = m0;" in "".join(text.replace("{ ", "{").replace(" }", "}"))
    assert "Two" not in text and scripts.bundle("a.js", "module").startswith("export default (")
    (tmp_path / "b.js").write_text('import { a } from "./a.js";\n')
    with pytest.raises(ValueError, match=r"a\.js imports itself by way of b\.js"):
        scripts.bundle("a.js")
    (tmp_path / "b.js").write_text("export default 2;\n")
    with pytest.raises(ValueError, match=r"b\.js: 'export default 2;'; expected"):
        scripts.bundle("a.js")


def test_without_quickjs_one_line_says_so(monkeypatch):
    monkeypatch.delattr(scripts._of_thread, "engine", raising=False)
    monkeypatch.setitem(__import__("sys").modules, "quickjs", None)
    with pytest.raises(d2ltvm.MissingError, match="pip install quickjs"):
        d2ltvm.explore.banks()


CHAPTERS = sorted(Path(__file__).parent.parent.glob("book/**/*.ipynb"))


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_an_exercise_links_to_a_figure_of_its_chapter_in_a_state_that_there_is(path):
    cells = json.loads(path.read_text())["cells"]
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    stored = "".join("".join(output.get("data", {}).get("text/html", "")) for output in outputs)
    figures = {}  # what a kernel in hand gave them, by id
    for tag in re.findall(r'<figure class="d2l-explorer"[^>]*>', stored):
        (found,), given = re.findall(r' id="([^"]*)"', tag), re.findall(r'given="([^"]*)"', tag)
        figures[found] = json.loads(html.unescape(given[0])) if given else None
    text = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    for figure, query in re.findall(r'href="#(explorer-[\w-]+)\?([^"]*)"', text):
        assert figure in figures
        state = dict(unquote(pair).split("=") for pair in query.split("&amp;"))
        name = figure.removeprefix("explorer-").removesuffix("-kernel")
        fields = ENGINE.call("described", name, figures[figure])["fields"]
        for key, value in state.items():
            assert value in map(str, fields[key]), f"{key}={value}"
