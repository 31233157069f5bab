"""Figures: what is drawn is what was given, and bad input is refused."""

import dataclasses

import matplotlib
import nasty
import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.colors import to_hex

import d2ltvm
from d2ltvm import figures
from d2ltvm.analysis import patterns
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


def test_what_stands_behind_has_a_name():
    d2ltvm.plot([1, 2], [[1, 2]], legend=["measured"], behind=[(0, [1, 2], [2, 3])], named="model")
    assert {"measured", "model"} <= texts()
    assert plt.gca().lines[1].get_marker() == "x"


def test_small_powers_of_two_are_written_out():
    d2ltvm.plot([1, 2, 32], [1.0, 2.0, 3.0], xscale="log")
    plt.gcf().canvas.draw()
    assert {"1", "2", "4", "8", "16", "32"} <= texts()


def test_a_value_that_would_stand_on_the_line_stands_in_its_bar():
    figures.bars({"slow": 1.0, "fast": 9.5}, line=(10.0, "library"))
    (inside,) = (t for t in plt.gca().texts if t.get_text() == "9.5")
    assert inside.get_color() == "white"


def test_a_format_without_a_colour_has_the_books():
    d2ltvm.plot([1, 2], [[1, 2], [2, 3]], fmts=["o-", "k:"])
    assert [line.get_color() for line in plt.gca().lines] == [style.COLOURS[0], "k"]


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


def test_records_of_other_devices_are_drawn_behind(monkeypatch):
    """Broken, in the colour of the series, where the other device has it; named at the foot."""
    record = d2ltvm.load_record("vector_add/bandwidth")
    first = next(iter(record.series))
    other = dataclasses.replace(
        record, device={**record.device, "name": "NVIDIA T4"}, series={first: record.series[first]}
    )
    monkeypatch.setattr(type(record), "elsewhere", property(lambda self: {"NVIDIA T4": other}))
    d2ltvm.plot_record(record, xscale="log")
    *lines, behind = plt.gca().get_lines()
    assert len(lines) == len(record.series)
    assert behind.get_color() == lines[0].get_color() and behind.get_linestyle() == "--"
    assert any("thin: NVIDIA T4, driver" in text for text in texts())


def beside(monkeypatch, **changed):
    """A stored record, and one of another device that differs from it in what is given."""
    record = d2ltvm.load_record("vector_add/bandwidth")
    other = dataclasses.replace(record, device={**record.device, "name": "NVIDIA T4"}, **changed)
    monkeypatch.setattr(type(record), "elsewhere", property(lambda self: {"NVIDIA T4": other}))
    return record, other


def shorter(record):
    """What a record has of all but its last x value."""
    return {
        "x": {**record.x, "values": record.x["values"][:-1]},
        "series": {name: values[:-1] for name, values in record.series.items()},
        "spread": {name: pairs[:-1] for name, pairs in record.spread.items()},
    }


def test_a_function_converts_the_x_of_each_device(monkeypatch):
    less = shorter(d2ltvm.load_record("vector_add/bandwidth"))
    record, other = beside(monkeypatch, **less)
    d2ltvm.plot_record(record, x=lambda n: n / 2**20, xlabel="Mi", xscale="log")
    lines = plt.gca().get_lines()
    own, behind = lines[: len(record.series)], lines[len(record.series) :]
    assert len(behind) == len(record.series)
    assert all(list(line.get_xdata()) == list(record.values / 2**20) for line in own)
    assert all(list(line.get_xdata()) == list(other.values / 2**20) for line in behind)
    names = [text.get_text() for text in plt.gca().get_legend().get_texts()]
    assert names == list(record.series)


def test_given_x_values_hold_for_devices_with_the_same_values(monkeypatch):
    record, _ = beside(monkeypatch)
    d2ltvm.plot_record(record, x=list(record.values / 2), xscale="log")
    *_, behind = plt.gca().get_lines()
    assert len(plt.gca().get_lines()) == 2 * len(record.series)
    assert list(behind.get_xdata()) == list(record.values / 2)


def test_given_x_values_hold_for_no_device_with_other_values(monkeypatch):
    record, _ = beside(monkeypatch, **shorter(d2ltvm.load_record("vector_add/bandwidth")))
    d2ltvm.plot_record(record, x=record.values / 2, xscale="log")
    assert len(plt.gca().get_lines()) == len(record.series)
    assert not any("T4" in text for text in texts())


def test_a_device_without_the_series_is_not_named_at_the_foot(monkeypatch):
    record, _ = beside(monkeypatch, series={"else": [1.0] * 10}, spread={})
    d2ltvm.plot_record(record, xscale="log")
    assert not any("T4" in text for text in texts())


def test_the_provenance_names_all_that_is_drawn(monkeypatch):
    record, other = beside(monkeypatch)
    assert figures.provenance(record) == f"{record.caption}\nthin: {other.caption}"
    assert figures.provenance(record, []) == record.caption


@pytest.mark.parametrize("x", [[1, 2], lambda n: n[:2], lambda n: 3, "MiB"])
def test_x_that_does_not_fit_a_record_is_refused(x):
    record = d2ltvm.load_record("vector_add/bandwidth")
    with pytest.raises(ValueError, match=r"expected (as many|finite numbers)"):
        d2ltvm.plot_record(record, x=x)


def test_a_ceiling_is_inside_of_the_picture():
    d2ltvm.plot([1, 2], [[1, 2]], ceilings=[(10, "copy")])
    assert plt.gca().get_ylim()[1] > 10
    assert "copy" in texts()


def test_bars_have_their_values_written_out():
    d2ltvm.figures.bars({"copy": 4.26, "PyTorch": 4.36}, "TB/s", line=(4.8, "data sheet"))
    assert {"4.26", "4.36", "TB/s", "data sheet"} <= texts()
    with pytest.raises(ValueError, match="finite"):
        d2ltvm.figures.bars({})


def test_the_label_of_a_line_stands_above_the_bars_and_the_line_ends_below_it():
    late = ({"two": 1.5}, "sustained")
    values = {"one": 1.0, "two": 2.0}
    d2ltvm.figures.bars(values, line=(1, "library"), points=late, label="short")
    (legend,) = plt.gcf().legends
    assert [text.get_text() for text in legend.get_texts()] == ["short", "sustained"]
    plt.gcf().canvas.draw()
    axes = plt.gca()
    (label,) = (t for t in axes.texts if t.get_text() == "library")
    assert label.get_window_extent().y0 >= axes.bbox.y1
    assert max(p.get_window_extent().y1 for p in axes.patches) < axes.bbox.y1
    one, two, late = sorted(axes.patches, key=lambda bar: -bar.get_y())
    assert [bar.get_width() for bar in (one, two, late)] == [1, 2, 1.5]
    assert late.get_y() > -0.5 and late.get_y() + late.get_height() < two.get_y()  # below its own


def test_a_negative_bar_is_inside_of_the_picture():
    """Its number too, which stands at its end, left of it."""
    d2ltvm.figures.bars({"slower": 5.0, "faster": -1.0}, "%")
    axes = plt.gca()
    plt.gcf().canvas.draw()
    extents = {text.get_text(): text.get_window_extent() for text in axes.texts}
    slower, faster = (patch.get_window_extent() for patch in axes.patches)
    assert axes.bbox.x0 < extents["-1"].x0 and extents["-1"].x1 < faster.x0
    assert slower.x1 < extents["5"].x0 and extents["5"].x1 < axes.bbox.x1


def test_a_spread_reaches_from_the_lowest_to_the_highest_and_stays_in_the_picture():
    d2ltvm.figures.bars({"a": 2.0, "b": 1.0}, spread={"a": (1.5, 3.0)})
    axes = plt.gcf().axes[0]
    (line,) = axes.collections  # b has none
    assert line.get_segments()[0][:, 0].tolist() == [1.5, 3.0]
    assert axes.get_xlim()[1] > 3.0


def test_only_negative_bars_end_at_zero():
    d2ltvm.figures.bars({"a": -2.0, "b": -1.0})
    left, right = plt.gca().get_xlim()
    assert left < -2 and right == 0


def test_the_roofline_has_its_corner_where_bandwidth_meets_the_peak():
    d2ltvm.figures.roofline({"FP32": 60.0}, {"HBM": 4.0}, {"add": (1 / 12, 0.3)})
    roof, slope = plt.gca().lines[:2]
    assert roof.get_xdata()[0] == pytest.approx(15)
    assert slope.get_ydata() == pytest.approx(4 * slope.get_xdata())


def test_points_of_one_kernel_are_joined_however_many():
    points = {str(k): (2.0**k, 1.0 + k) for k in range(9)}
    d2ltvm.figures.roofline({"FP32": 60.0}, {"HBM": 4.0}, points)
    apart = len(plt.gca().lines)
    d2ltvm.figures.roofline({"FP32": 60.0}, {"HBM": 4.0}, points, joined=True)
    *_, through = plt.gca().lines
    assert len(plt.gca().lines) == apart + 1
    assert through.get_xdata().tolist() == [x for x, _ in points.values()]


def test_threads_are_numbered_as_given():
    d2ltvm.figures.draw_threads({"continuous": [0, 0, 1], "alternate": [0, 1, 0]})
    shown = [[t.get_text() for t in axes.texts] for axes in plt.gcf().axes]
    assert shown == [["0", "0", "1"], ["0", "1", "0"]]
    with pytest.raises(ValueError, match="empty"):
        d2ltvm.figures.draw_threads({"nobody": []})


def test_the_first_number_of_an_owner_decides_the_shade():
    d2ltvm.figures.draw_threads({"block, thread": [(0, 0), (0, 1), (1, 0)]})
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
    d2ltvm.figures.draw_memory(d2ltvm.chip("T4"))
    assert any("40 multiprocessors" in t for t in texts())
    assert "0.32 TB/s" in texts() and "L2 cache" in texts()
    ways = {"L2 cache": ("1.3 TB/s", "200 ns"), "device memory": ("0.25 TB/s", "400 ns")}
    d2ltvm.figures.draw_memory(d2ltvm.chip("T4"), ways)
    assert {"1.3 TB/s", "200 ns", "0.25 TB/s", "400 ns"} < set(texts())
    assert "0.32 TB/s" not in texts()
    with pytest.raises(ValueError, match=r"ways have \['L3'\]; expected some of registers, L1 and"):
        d2ltvm.figures.draw_memory(d2ltvm.chip("T4"), {"L3": ("", "")})


def test_requests_are_drawn_where_the_lanes_ask():
    tiles = {pad: d2ltvm.warp_request(nasty.transpose(64, 32, 32, pad), "tile") for pad in (0, 1)}
    d2ltvm.figures.draw_requests({f"pad {pad}": tile for pad, tile in tiles.items()})
    conflict, free = plt.gcf().axes
    assert conflict.get_title(loc="left") == "pad 0: 32 wavefronts"
    assert free.get_title(loc="left") == "pad 1: 1 wavefront"
    columns = [{int(square.get_x()) for square in axes.patches} for axes in (conflict, free)]
    assert len(columns[0]) == 1 and len(columns[1]) == 32
    lanes = [int(text.get_text()) for text in free.texts]
    assert sorted(lanes) == list(range(32))


@pytest.mark.slow
def test_lanes_may_have_one_colour_in_global_memory():
    request = d2ltvm.warp_request(d2ltvm.schedules.vectorized(1024), "A")
    for alike, colours in ((False, 4), (True, 1)):
        d2ltvm.figures.draw_requests({"A": request}, alike=alike)
        assert len({square.get_facecolor() for square in plt.gcf().axes[0].patches}) == colours


def test_words_that_nobody_asks_for_need_not_be_drawn():
    request = d2ltvm.warp_request(d2ltvm.schedules.vectorized(1024), "A")
    narrow = d2ltvm.warp_request(d2ltvm.schedules.one_thread_each(8, nt=8), "A")
    d2ltvm.figures.draw_requests({"A": narrow}, words=8)
    assert plt.gcf().axes[0].get_xlim()[1] < 9
    with pytest.raises(ValueError, match="words is 8; expected more than 31"):
        d2ltvm.figures.draw_requests({"A": request}, words=8)


def test_a_timeline_has_marks_where_they_are_given():
    rows = {"warp 0": [(0, 2, "load")]}
    figures.draw_timeline({"one": rows}, {"load": "#0072B2"}, marks={"one": [(1, "barrier")]})
    assert "barrier" in texts()


def test_a_timeline_has_lengths_where_a_format_is_given():
    rows = {"warp 0": [(0, 2, "load"), (2, 5.4, "wait")]}
    kinds = {"load": "#0072B2", "wait": "#F2F2F2"}
    figures.draw_timeline({"one": rows}, kinds, lengths=".1f")
    written = {text.get_text(): text.get_color() for text in plt.gcf().axes[0].texts}
    assert written == {"2.0": "white", "3.4": "black"}


def test_squares_have_a_label_of_their_own_and_panels_need_not_say_how_often():
    figures.draw_threads({"two": [(0, 5), (1, 7)]}, label=lambda owner: owner[1])
    assert {"5", "7"} <= set(texts())
    figures.draw_touched({"A": np.ones((2, 2), int)}, often=False)
    assert plt.gcf().axes[0].get_title() == "A:\n4 elements"


def test_banks_have_numbers_where_asked_for():
    tile = d2ltvm.warp_request(nasty.transpose(64, 32, 32), "tile")
    figures.draw_requests({"a column": tile}, banks=True)
    assert {"bank 0", "4", "28"} <= set(texts())


def test_words_of_one_wavefront_have_one_colour():
    tile = d2ltvm.warp_request(nasty.transpose(64, 32, 32), "tile")
    d2ltvm.figures.draw_requests({"a column": tile})
    (axes,) = plt.gcf().axes
    colours = [square.get_facecolor() for square in axes.patches]
    assert len(set(colours[:6])) == 6  # six wavefronts have a colour each, later ones are grey
    assert len(set(colours[6:])) == 1 and colours[6] not in colours[:6]
    d2ltvm.figures.draw_requests({"a row": patterns.from_tile(32, across=32)})
    assert len({square.get_facecolor() for square in plt.gcf().axes[0].patches}) == 1


def test_an_element_has_the_colour_of_its_kind():
    figures.draw_kinds({"rounds": [[0, 1, 2], [1, 1, 0]]}, ["nothing", "again", "new"])
    (mesh,) = plt.gcf().axes[0].collections
    assert mesh.get_array().tolist() == [[0, 1, 2], [1, 1, 0]]
    assert [t.get_text() for t in plt.gcf().legends[0].texts] == ["nothing", "again", "new"]
    with pytest.raises(ValueError, match="'out' has kinds from 0 to 3; expected 0 to 1"):
        figures.draw_kinds({"out": [[0, 3]]}, ["no", "yes"])


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
    d2ltvm.figures.draw_tiles({"two rows": owner}, thread=33)
    (axes,) = plt.gcf().axes
    image = axes.images[0].get_array()
    assert [int((image >= level).sum()) for level in (1, 2, 3)] == [128, 64, 2]
    assert axes.get_title(loc="left") == "two rows; elements:\nblock 128, warp 64, thread 2"
    legend = [text.get_text() for text in plt.gcf().legends[0].get_texts()]
    assert legend == ["tensor", "block", "warp 1", "thread 33"]
    d2ltvm.figures.draw_tiles({"two rows": owner}, thread=33, zoom=True)
    assert plt.gcf().axes[0].images[0].get_array().shape == (2, 64)
    with pytest.raises(ValueError, match="in which thread 64 owns elements"):
        d2ltvm.figures.draw_tiles({"two rows": owner}, thread=64)


def test_a_window_is_drawn_with_its_numbers():
    x, w = np.array([[1, 2, 0], [0, 1, 3], [2, 0, 1]]), np.array([[0, 1, 0], [1, 2, 1], [0, 1, 0]])
    figures.draw_window(x, w, p=1, at=(0, 1))
    wanted = d2ltvm.conv_reference(x[None], w[None, None], 1)[0]
    (axes,) = plt.gcf().axes
    drawn = [text.get_text() for text in axes.texts]
    assert drawn[:25] == [str(v) for v in np.pad(x, 1).ravel()]
    assert drawn[25:34] == [str(v) for v in w.ravel()]
    assert drawn[34:43] == [str(v) for v in wanted.ravel()]
    assert drawn[43:] == ["∗", "=", "image X", "kernel K", "result Y"]
    frames = [p.get_bbox().bounds for p in axes.patches if not p.get_fill()]
    assert frames[0] == (1, 0, 3, 3) and frames[2][2:] == (1, 1)


def test_what_tiles_read_is_drawn_with_how_often():
    figures.draw_inputs({"a pixel": (1, 2, 1, 1), "a tile": (0, 0, 2, 4)}, n=6, k=3, p=1)
    first, second = plt.gcf().axes
    names = ["X and its padding", "Y"]
    assert [text.get_text() for text in first.texts] == ["1"] * 9 + names
    assert sum(int(text.get_text()) for text in second.texts[:-2]) == 2 * 4 * 9
    (frame,) = (p for p in second.patches if not p.get_fill())
    assert frame.get_bbox().bounds == (1, 1, 4, 2)
    assert second.get_title(loc="left") == (
        "a tile: 8 pixels of Y read 24 numbers of X,\n3 times each on average"
    )
    figures.draw_inputs({"apart": (0, 0, 2, 2)}, n=7, k=3, s=2)
    assert [text.get_text() for text in plt.gca().texts][25:] == ["X", "Y"]
    assert all(p.get_fill() for p in plt.gca().patches)


@pytest.mark.slow
def test_tiles_of_a_convolution_are_those_of_the_schedule():
    sch = d2ltvm.schedules.tiling(64, 2, 64, 3, 1, 1)
    figures.draw_conv_tiles(d2ltvm.owners(sch, "Y", block=(0, 5, 1)), n=64, k=3, p=1, thread=37)
    y, channels, x, kernels = (axes.images[0].get_array() for axes in plt.gcf().axes)
    assert [int((y >= level).sum()) for level in (1, 2, 3)] == [256, 256, 8]
    assert [int((channels >= level).sum()) for level in (1, 2, 3)] == [2048, 512, 32]
    assert [int((x >= level).sum()) for level in (1, 2, 3)] == [6 * 64, 6 * 64, 4 * 6]
    read = d2ltvm.touched(sch, "X", block=(0, 5, 1))[0] > 0
    assert np.array_equal(x >= 1, read)
    read = d2ltvm.touched(sch, "K", block=(0, 5, 1))[:, 0].reshape(64, 9) > 0
    assert np.array_equal(kernels >= 1, read)
    assert "Y, row 20; elements:\nblock 2,048, warp 512, thread 32" in texts()


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: figures.draw_window(np.ones((2, 3)), np.eye(2)), r"x has shape \(2, 3\)"),
        (lambda: figures.draw_window(np.ones((3, 3)), np.eye(5), p=0), "k is 5; expected at most"),
        (lambda: figures.draw_window(np.eye(3), np.eye(2), at=(2, 0)), r"at is \(2, 0\); expected"),
        (lambda: figures.draw_window(np.eye(3), np.eye(2), s=0), "s is 0; expected an integer"),
        (lambda: figures.draw_inputs({}, 4, 3), "expected one or more"),
        (lambda: figures.draw_inputs({"a": (0, 0, 3, 1)}, 4, 3), "expected a place in a result"),
        (lambda: figures.draw_inputs({"a": (0, 0, 1, 1)}, 4, 3, level="lane"), "level is 'lane'"),
        (lambda: figures.draw_conv_tiles(np.zeros((2, 3, 3)), 4, 3, 1), r"owner has shape \(2, 3"),
        (lambda: figures.draw_conv_tiles(np.zeros((2, 4, 4)), 4, 3, 1, thread=5), "thread is 5"),
    ],
)
def test_pictures_of_no_convolution_are_refused(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()


@pytest.mark.slow
def test_what_is_touched_is_drawn_as_given():
    counts = np.zeros((4, 6), int)
    counts[1:3, 2:4] = 3
    d2ltvm.figures.draw_touched({"A": counts, "B": np.arange(5)})
    first, second = plt.gcf().axes
    assert first.images[0].get_array().tolist() == counts.tolist()
    assert second.images[0].get_array().shape == (1, 5)
    assert {"A: 4 elements,\neach 3 times", "B: 4 elements,\neach 1 to 4 times"} <= texts()


def test_what_is_touched_once_is_said_so():
    d2ltvm.figures.draw_touched({"A": np.eye(3, dtype=int)})
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
        d2ltvm.figures.draw_touched({"A": counts})


def test_a_launch_has_an_arrow_for_each_element():
    sch = d2ltvm.schedules.one_thread_each(6, nt=4)
    blocks = [d2ltvm.owners(sch, "C", block=(b, 0, 0)) for b in range(2)]
    figures.draw_launch(blocks, threads=4, mark=(1, 1))
    (axes,) = plt.gcf().axes
    arrows = [t for t in axes.texts if isinstance(t, matplotlib.text.Annotation)]
    assert [arrow.xy[0] for arrow in arrows] == [e + 0.5 for e in range(6)]
    assert "block 1, thread 1: i = 1 × 4 + 1 = 5" in texts()
    with pytest.raises(ValueError, match=r"mark is \(1, 2\); expected a block and a thread with"):
        figures.draw_launch(blocks, threads=4, mark=(1, 2))
    with pytest.raises(ValueError, match="expected vectors of one length"):
        figures.draw_launch([], threads=4)


def test_the_first_step_touches_the_rows_of_each_thread_s_first_element():
    owner = np.repeat(np.arange(4), 4).reshape(4, 4)
    figures.draw_first_step({"runs": owner, "turns": owner.T})
    for axes, touched in zip(plt.gcf().axes, (4, 1), strict=True):
        white = sum(p.get_facecolor() == (1, 1, 1, 1) for p in axes.patches)
        assert white == 16 - 4 * touched
    with pytest.raises(ValueError, match="expected matrices by title"):
        figures.draw_first_step({"a vector": [0, 1]})


def test_a_flow_has_its_boxes_and_refuses_arrows_to_nowhere():
    boxes = {"schedule": (0, 0), "CUDA": (1, 0), "GPU": (1, 1)}
    figures.draw_flow(boxes, [("schedule", "CUDA"), ("CUDA", "GPU")])
    assert set(boxes) <= texts()
    with pytest.raises(ValueError, match="an arrow ends at 'processor'"):
        figures.draw_flow(boxes, [("CUDA", "processor")])
    with pytest.raises(ValueError, match="boxes is empty"):
        figures.draw_flow({}, [])


def test_what_is_read_is_blue_and_what_is_computed_orange():
    read = np.zeros((2, 3), bool)
    read[1] = True
    figures.draw_reads(
        {"sums of rows": (read, (2,), (1,)), "zeros": (~read & read, (3, 3), (0, 0))}
    )
    for axes, blue in zip(plt.gcf().axes, (3, 0), strict=True):
        colours = [to_hex(p.get_facecolor()).upper() for p in axes.patches]
        assert colours.count(figures.COLOURS[0]) == blue
        assert colours.count(figures.COLOURS[1]) == 1
    figures.draw_reads({"both sums": (2 * read, (2,), [(0,), (1,)])}, "a line below")
    axes = plt.gcf().axes[0]
    assert [text.get_text() for text in axes.texts if text.get_text()] == [*"222", "a line below"]
    colours = [to_hex(p.get_facecolor()).upper() for p in axes.patches]
    assert colours.count(figures.COLOURS[1]) == 2
    for wrong in (
        (read[0], (2,), (0,)),
        (read, (2,), (2,)),
        (read, (2, 2), (0,)),
        (read, (2,), [(0,), (2,)]),
    ):
        with pytest.raises(ValueError, match="expected a matrix, one or two axes"):
            figures.draw_reads({"wrong": wrong})
    with pytest.raises(ValueError, match="examples is empty"):
        figures.draw_reads({})


def test_a_chain_is_drawn_with_its_steps_in_order():
    figures.draw_chain([2, 0, 1], every=32)
    written = [text.get_text() for text in plt.gca().texts]
    assert set(written) >= {"A[0]", "A[32]", "A[64]", "64", "0", "32", "1", "2", "3"}
    with pytest.raises(ValueError, match="expected numbers below 3"):
        figures.draw_chain([3, 0, 1])


def test_banks_are_numbered_below_requests_to_shared_memory():
    sch = d2ltvm.schedules.tiling(64, 2, 64, 3, 1, 1)
    requests = {name: d2ltvm.warp_request(sch, f"Padded{name}_shared") for name in ("X", "K")}
    figures.draw_requests(requests, banks=True)
    image, weights = ([text.get_text() for text in axes.texts] for axes in plt.gcf().axes)
    assert image[32:] == ["bank 0", "4", "8", "12", "16", "20", "24", "28"]
    assert weights == ["0", *image[32:], "asked for by 32 lanes"]


def test_roles_tell_and_wait():
    roles = {"producer": "threads", "full": "barrier", "consumer": "threads"}
    told = [
        ("producer", "full", "arrives"),
        "in each round",
        ("full", "consumer", "may go on"),
        ("consumer", "consumer", "adds up"),
        ("consumer", "producer", "is done", "waits"),
    ]
    figures.draw_roles(roles, told, note="here")
    assert {*roles, "arrives", "in each round", "may go on", "adds up", "here"} <= texts()
    assert {"threads", "barrier"} <= texts() and "unit" not in texts()  # a legend of what is there
    (axes,) = plt.gcf().axes
    arrows = [t.arrow_patch for t in axes.texts if getattr(t, "arrow_patch", None)]
    assert [arrow.get_linestyle() for arrow in arrows] == ["-", "--", "--"]
    for bad in [("producer", "queue", "x")], [("producer", "full")], [(*told[0], "runs")], []:
        with pytest.raises(ValueError, match="expected"):
            figures.draw_roles(roles, bad)
    with pytest.raises(ValueError, match="'x' is a 'lamp'; expected one of threads, unit, barrier"):
        figures.draw_roles({"x": "lamp"}, ["y"])


def test_steps_have_words_and_no_scale():
    rows = {
        "one": [(0, 2, "move", "write")],
        "others": [(0, 2, "wait", ""), (2, 4, "move", "read")],
    }
    colours = {"move": "#0072B2", "wait": "#F2F2F2"}
    figures.draw_steps({"hand over": rows}, colours, note="here")
    assert {"hand over", "write", "read", "move", "wait", "here"} <= texts()
    (axes,) = plt.gcf().axes
    assert [bar.get_x() for bar in axes.patches] == [0, 0, 2]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["one", "others"]
    inks = {t.get_text(): t.get_color() for t in axes.texts}
    assert inks["write"] == "white"  # on dark blue
    for step in [(0, 1, "sleep", ""), (2, 1, "move", "")]:
        with pytest.raises(ValueError, match="'x' has the step"):
            figures.draw_steps({"x": {"one": [step]}}, colours)


def test_a_graph_has_its_nodes_and_what_flows():
    nodes = [
        ("x", "x", "given", {}),
        ("c", "conv", "conv", {"x": "1 KB"}),
        ("s", "add", "light", {"c": "2 KB", "x": "1 KB again"}),
    ]
    figures.draw_graph({"imported": nodes, "fused": nodes[:2]})
    assert {"imported", "fused", "conv", "add", "1 KB", "2 KB", "1 KB again"} <= texts()


@pytest.mark.parametrize(
    ("panels", "message"),
    [
        ({}, "panels is {}; expected nodes"),
        ({"a": []}, "expected nodes by title"),
        ({"a": [("x", "x", "heavy", {})]}, "x is 'heavy'; expected one of conv"),
        ({"a": [("x", "x", "light", {"y": ""})]}, "x reads 'y'; expected a node above it"),
    ],
)
def test_a_graph_that_is_none_is_refused(panels, message):
    with pytest.raises(ValueError, match=message):
        figures.draw_graph(panels)


def test_storages_show_each_result_in_its_place():
    figures.draw_storages([(2048, 0, 1), (1024, 1, 2), (1024, 0, 3)], [2048, 1024])
    boxes = [p for p in plt.gca().patches if p.get_width() == 1.88]
    assert [(p.get_x() // 1, p.get_height()) for p in boxes] == [(0, 0.8), (1, 0.8), (2, 0.4)]
    assert {"0: 2 KiB", "1: 1 KiB"} <= texts()
    kept = [(1024, 0, 2), (1024, 1, 2), (1024, 0, 3)]  # the last one while the first is read
    for results in ([], [(1, 2, 1)], [(2049, 0, 1)], [(1, 0, 0)], kept):
        with pytest.raises(ValueError, match="expected"):
            figures.draw_storages(results, [2048, 1024])


def test_a_block_is_drawn_with_the_numbers_of_its_threads():
    owner = np.full((12, 40), -1)
    owner[:4, 16:32] = np.arange(64).reshape(4, 16)
    d2ltvm.figures.draw_block(owner, thread=33)
    whole, part = plt.gcf().axes
    assert [text.get_text() for text in part.texts] == [f"{k}" for k in range(64)]
    assert int((whole.images[0].get_array() == 1).sum()) == 64
    image = part.images[0].get_array()
    assert [int((image >= level).sum()) for level in (1, 2, 3)] == [64, 32, 1]
    with pytest.raises(ValueError, match="in which thread 64 owns elements"):
        d2ltvm.figures.draw_block(owner, thread=64)


def test_a_row_that_is_split_shows_who_writes_what():
    figures.draw_split_row(16)
    assert {"float32 0 to 7", "high\n8 to 15", "low\n0 to 7", "box 1: 32 bytes"} <= texts()
    assert {"reads 32", "four writes\nof 16 bytes", "thread 0", "thread 1"} <= texts()


def test_places_have_the_threads_that_ask_for_them():
    figures.draw_places({"a": {(0, 1): 4}, "b": {(1, 0): 7}}, ["above", "below"], columns=2)
    assert {"a", "b", "4", "7", "above", "below"} <= texts()
