"""What a benchmark returns: values by contender, and one clock's out of several."""

import numpy as np
import pytest

import d2ltvm
from d2ltvm.bench import Measurement


def made(**rest):
    given = {"unit": "µs", "x": {"label": "n", "values": [1, 2]}, "series": {"TVM": [3.0, 4.0]}}
    return Measurement(**{**given, **rest})


def test_a_dict_is_as_good():
    assert Measurement.of({"unit": "µs", "x": made().x, "series": made().series}) == made()
    measurement = made()
    assert Measurement.of(measurement) is measurement
    with pytest.raises(TypeError, match="result is a list; expected a Measurement, or a dict"):
        Measurement.of([1.0, 2.0])


def test_values_by_name_and_place():
    found = made(missing=["MXNet"])
    assert found["TVM"].dtype == "float64" and found["TVM"].tolist() == [3, 4]
    assert found.at("TVM", 2) == 4 and found.label == "n" and found.values.tolist() == [1, 2]
    assert np.isnan(found["MXNet"]).tolist() == [True, True]
    with pytest.raises(KeyError, match="'cuDNN'; expected one of the measurement: TVM"):
        found["cuDNN"]
    with pytest.raises(KeyError, match=r"3; expected an x of the measurement: \[1, 2\]"):
        found.at("TVM", 3)
    with pytest.raises(ValueError, match=r"series \['a'\] of the measurement: expected 2 values"):
        made(series={"a": [1.0], "b": [1.0, 2.0]})


@pytest.mark.parametrize("notes", ["", d2ltvm.bench.measurement.method(("burst", "sustained"))])
def test_one_clock_of_several(notes):
    both = made(
        series={"TVM": [3.0, 4.0], "a, b": [1.0, 1.0], "TVM, sustained": [5.0, 6.0]},
        spread={"TVM": [[2, 4], [3, 5]], "TVM, sustained": [[4, 6], [5, 7]]},
        missing=("cuDNN", "cuDNN, sustained"),
        notes=notes,
    )
    burst, late = both.by_clock("burst"), both.by_clock("sustained")
    assert burst.series == {"TVM": [3.0, 4.0], "a, b": [1.0, 1.0]}
    assert late.series == {"TVM": [5.0, 6.0]} and late.spread == {"TVM": [[4, 6], [5, 7]]}
    assert burst.missing == late.missing == ("cuDNN",) and np.isnan(late["cuDNN"]).all()
    assert both.series["TVM, sustained"] == [5.0, 6.0]  # as it was


def test_a_clock_that_was_not_asked():
    with pytest.raises(KeyError, match="clock 'sustained'; the measurement has: host clock"):
        made(notes=d2ltvm.bench.measurement.method("host")).by_clock("sustained")
    with pytest.raises(ValueError, match="clock is 'sundial'; expected one of 'graph'"):
        made().by_clock("sundial")


def test_records_have_their_clocks_under_the_names_they_were_stored_by():
    for name in ("layer", "batches", "resnet_3x3", "products", "float32", "begin"):
        record = d2ltvm.load_record(f"hopper/{name}")
        burst, late = record.by_clock("burst"), record.by_clock("sustained")
        assert list(burst.series) == list(late.series)
        assert burst.name == record.name and burst.caption == late.caption == record.caption
        for legend in burst.series:
            assert burst.series[legend] == record.series[legend]
            assert late.series[legend] == record.series[f"{legend}, sustained"]
            assert burst.spread.get(legend) == record.spread.get(legend)
    with pytest.raises(KeyError, match="clock 'host'; hopper/layer has: CUDA graphs"):
        d2ltvm.load_record("hopper/layer").by_clock("host")
