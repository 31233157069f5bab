"""Figures: what is drawn is what was given, and bad input is refused."""

import matplotlib
import nasty
import numpy as np
import pytest
from matplotlib import pyplot as plt

import d2ltvm
from d2ltvm import figures
from d2ltvm.figures import style

matplotlib.use("Agg")


@pytest.fixture(autouse=True)
def closed():
    plt.close("all")
    yield
    plt.close("all")


def texts():
    return {t.get_text() for t in plt.gcf().findobj(matplotlib.text.Text)}


def test_curves_are_drawn_as_given():
    d2ltvm.plot([1, 2, 4], [[1, 2, 3], [2, 3, 5]], "n", "GFLOPS", ["NumPy", "TVM"], note="here")
    first, second = plt.gca().lines
    assert list(first.get_xdata()) == [1, 2, 4]
    assert list(second.get_ydata()) == [2, 3, 5]
    assert first.get_marker() != second.get_marker()  # told apart without colour
    assert {"n", "GFLOPS", "NumPy", "TVM", "here"} <= texts()


@pytest.mark.parametrize(
    ("x", "y", "legend", "message"),
    [
        ([1, 2], [[1, 2, 3]], [], "2 of X and 3 of Y"),
        ([1, 2], [[1, np.nan]], [], "expected finite numbers"),
        ([], [[]], [], "0 of X and 0 of Y; expected as many"),
        ([1, 2], [[1, 2]], ["a", "b"], "legend has 2 names"),
    ],
)
def test_curves_that_make_no_sense_are_refused(x, y, legend, message):
    with pytest.raises(ValueError, match=message):
        d2ltvm.plot(x, y, legend=legend)


def test_gflops_are_drawn_on_logarithmic_axes():
    d2ltvm.plot_gflops([1e3, 1e6], [[1.0, 100.0]], ["TVM"])
    assert plt.gca().get_xscale() == plt.gca().get_yscale() == "log"
    plt.gcf().canvas.draw()
    assert "100,000" in {t.get_text() for t in plt.gca().get_xticklabels()}


def test_a_record_brings_its_provenance_and_its_spread():
    record = d2ltvm.load_record("vector_add/bandwidth")
    d2ltvm.plot_record(record, legends=["PyTorch"], xscale="log")
    assert record.caption in texts()
    assert len(plt.gca().collections) == 1


def test_a_ceiling_is_inside_of_the_picture():
    d2ltvm.plot([1, 2], [[1, 2]], ceilings=[(10, "copy")])
    assert plt.gca().get_ylim()[1] > 10
    assert "copy" in texts()


def test_bars_have_their_values_written_out():
    d2ltvm.bars({"copy": 4.26, "PyTorch": 4.36}, "TB/s", line=(4.8, "data sheet"))
    assert {"4.26", "4.36", "TB/s", "data sheet"} <= texts()
    with pytest.raises(ValueError, match="finite"):
        d2ltvm.bars({})


def test_a_negative_bar_is_inside_of_the_picture():
    """Its number too, which stands at its end, left of it."""
    d2ltvm.bars({"slower": 5.0, "faster": -1.0}, "%")
    axes = plt.gca()
    plt.gcf().canvas.draw()
    extents = {text.get_text(): text.get_window_extent() for text in axes.texts}
    slower, faster = (patch.get_window_extent() for patch in axes.patches)
    assert axes.bbox.x0 < extents["-1"].x0 and extents["-1"].x1 < faster.x0
    assert slower.x1 < extents["5"].x0 and extents["5"].x1 < axes.bbox.x1


def test_only_negative_bars_end_at_zero():
    d2ltvm.bars({"a": -2.0, "b": -1.0})
    left, right = plt.gca().get_xlim()
    assert left < -2 and right == 0


def test_the_roofline_has_its_corner_where_bandwidth_meets_the_peak():
    d2ltvm.roofline({"FP32": 60.0}, {"HBM": 4.0}, {"add": (1 / 12, 0.3)})
    roof, slope = plt.gca().lines[:2]
    assert roof.get_xdata()[0] == pytest.approx(15)
    assert slope.get_ydata() == pytest.approx(4 * slope.get_xdata())


def test_threads_are_numbered_as_given():
    d2ltvm.draw_threads({"continuous": [0, 0, 1], "alternate": [0, 1, 0]})
    shown = [[t.get_text() for t in axes.texts] for axes in plt.gcf().axes]
    assert shown == [["0", "0", "1"], ["0", "1", "0"]]
    with pytest.raises(ValueError, match="empty"):
        d2ltvm.draw_threads({"nobody": []})


def test_the_first_number_of_an_owner_decides_the_shade():
    d2ltvm.draw_threads({"block, thread": [(0, 0), (0, 1), (1, 0)]})
    (axes,) = plt.gcf().axes
    assert [t.get_text() for t in axes.texts] == ["0,0", "0,1", "1,0"]
    same, also, other = (square.get_facecolor() for square in axes.patches)
    assert same == also != other


def test_powers_of_two_have_ticks_at_themselves():
    d2ltvm.plot([1, 16, 4096], [1.0, 2.0, 3.0], xscale="log")
    assert plt.gca().get_xticks().tolist() == [4.0**k for k in range(7)]


def test_legends_fill_their_rows_evenly():
    for names, columns in ((["a"] * 4, 4), (["TVM, one loop"] * 4, 2), (["wide, two rows"] * 7, 3)):
        d2ltvm.plot([1, 2], [[1, 2]] * len(names), legend=names)
        assert plt.gca().get_legend()._ncols == columns


def test_the_memory_picture_is_of_the_chip_given():
    d2ltvm.draw_memory(d2ltvm.chip("T4"))
    assert any("40 multiprocessors" in t for t in texts())
    assert "0.32 TB/s" in texts()


def test_requests_are_drawn_where_the_lanes_ask():
    tiles = {pad: d2ltvm.warp_request(nasty.transpose(64, 32, 32, pad), "tile") for pad in (0, 1)}
    d2ltvm.draw_requests({f"pad {pad}": tile for pad, tile in tiles.items()})
    conflict, free = plt.gcf().axes
    assert conflict.get_title(loc="left") == "pad 0: 32 wavefronts"
    assert free.get_title(loc="left") == "pad 1: 1 wavefront"
    columns = [{int(square.get_x()) for square in axes.patches} for axes in (conflict, free)]
    assert len(columns[0]) == 1 and len(columns[1]) == 32
    lanes = [int(text.get_text()) for text in free.texts]
    assert sorted(lanes) == list(range(32))


def test_a_request_nobody_makes_is_refused():
    sch = nasty.transpose(64, 32, 32)
    with pytest.raises(
        ValueError,
        match=r"tensor is 'elsewhere', kind 'read', number 0; expected .*: read A, read tile",
    ):
        d2ltvm.warp_request(sch, "elsewhere")
    with pytest.raises(ValueError, match="tensor is 'tile', kind 'read', number 1; expected"):
        d2ltvm.warp_request(sch, "tile", number=1)


def test_tiles_are_drawn_by_level():
    owner = np.full((8, 80), -1)
    owner[2:4, 8:72] = np.repeat(np.arange(64), 2).reshape(2, 64)
    d2ltvm.draw_tiles({"two rows": owner}, thread=33)
    (axes,) = plt.gcf().axes
    image = axes.images[0].get_array()
    assert [int((image >= level).sum()) for level in (1, 2, 3)] == [128, 64, 2]
    assert axes.get_title(loc="left") == "two rows; elements:\nblock 128, warp 64, thread 2"
    legend = [text.get_text() for text in plt.gcf().legends[0].get_texts()]
    assert legend == ["tensor", "block", "warp 1", "thread 33"]
    d2ltvm.draw_tiles({"two rows": owner}, thread=33, zoom=True)
    assert plt.gcf().axes[0].images[0].get_array().shape == (2, 64)
    with pytest.raises(ValueError, match="in which thread 64 owns elements"):
        d2ltvm.draw_tiles({"two rows": owner}, thread=64)


def test_what_is_touched_is_drawn_as_given():
    counts = np.zeros((4, 6), int)
    counts[1:3, 2:4] = 3
    d2ltvm.draw_touched({"A": counts, "B": np.arange(5)})
    first, second = plt.gcf().axes
    assert first.images[0].get_array().tolist() == counts.tolist()
    assert second.images[0].get_array().shape == (1, 5)
    assert {"A: 4 elements,\neach 3 times", "B: 4 elements,\neach 1 to 4 times"} <= texts()


def test_what_is_touched_once_is_said_so():
    d2ltvm.draw_touched({"A": np.eye(3, dtype=int)})
    assert "A: 3 elements,\neach once" in texts()


def test_the_style_is_a_sheet_and_is_left_behind():
    """A reader can use it by its path, and a figure of the book changes nothing for the next."""
    before = dict(plt.rcParams)
    d2ltvm.plot([1, 2], [1, 2])
    assert dict(plt.rcParams) == before
    assert not plt.gca().spines["top"].get_visible()
    with plt.style.context(style.SHEET):
        assert all(plt.rcParams[name] == value for name, value in figures.STYLE.items())


def test_a_shade_is_the_colour_thinned_with_white():
    red, green, blue = style.tint(1)  # 0.62 of #D55E00
    assert (red, green, blue) == pytest.approx(
        (1 - 0.62 * (1 - 0xD5 / 255), 1 - 0.62 * (1 - 0x5E / 255), 1 - 0.62)
    )


@pytest.mark.parametrize("counts", [np.zeros((2, 2)), np.ones((2, 2, 2))])
def test_pictures_of_nothing_are_refused(counts):
    with pytest.raises(ValueError, match="expected a matrix, some of it touched"):
        d2ltvm.draw_touched({"A": counts})
