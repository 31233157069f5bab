"""Fuzz of what looks at kernels: traffic, occupancy, data sheets, layouts, and plans for Hopper."""

import functools
import itertools
import math

import brute
import numpy as np
import tvm
from fuzzing import EITHER, ODD, REFUSED, Maybe, mostly, sizes, spoiled, whole
from hypothesis import strategies as st
from test_access import by_brute_force

import d2ltvm
from d2ltvm import hopper, layouts, schedules
from d2ltvm.analysis import coalescing
from d2ltvm.hopper import float32, planning
from d2ltvm.system import chips


def kernels(draw):
    """A schedule that has been drawn among small ones."""
    n, nt = draw(st.integers(1, 150)), draw(st.sampled_from([1, 3, 8, 32, 33, 64]))
    width = draw(st.sampled_from([1, 2, 4]))
    few = draw(st.integers(1, 12))
    return draw(
        st.sampled_from(
            [
                functools.partial(schedules.one_thread_each, n, nt),
                functools.partial(schedules.vectorized, 4 * n, nt, width),
                functools.partial(schedules.unrolled, 4 * n, nt, width, 2),
                functools.partial(schedules.continuous_parallel, few, nt, 2),
                functools.partial(schedules.alternate_parallel, few, nt, 2),
                functools.partial(schedules.bcast_rows, 4 * few, 8, width, 2),
                functools.partial(schedules.matmul_naive, few, few + 1, 3, 4),
                functools.partial(schedules.matmul_shared, few, few + 1, 5, 4),
                functools.partial(schedules.default_sch, 2, 2, few + 2, 3, 1, 1),
            ]
        )
    )()


def as_written(tally, draw):
    """`traffic` of what runs thread by thread; `touched` and `warp_request` by their sums."""
    sch = kernels(draw)
    kind = draw(st.sampled_from(["traffic", "sectors", "touched", "warp_request"]))
    if kind in ("traffic", "sectors"):
        want = by_brute_force(sch)
        want = {k: v[:3] for k, v in want.items() if kind == "traffic" or k[1] == "global"}

        def expected(table):
            """Stores are all made. Loads may be kept in registers, but are not more."""
            found = {
                (t.tensor, t.scope, t.kind, t.width): (t.requests, t.sectors, t.wavefronts)
                for t in table
            }
            assert found.keys() == want.keys()
            assert all(found[k] == want[k] for k in want if k[2] == "write")
            return all(a <= b for k in want for a, b in zip(found[k], want[k], strict=True))

        tally.judge(getattr(d2ltvm, kind), {"sch": sch}, expected)
        return
    word = draw(st.sampled_from(["read", "read", "write"]))
    tensor = draw(st.sampled_from(["A", "B", "X"] if word == "read" else ["C", "Y"]))
    last = {"block": st.just((0, 0, 0))} if kind == "touched" else {"number": st.just(0)}
    arguments = spoiled(draw, {"tensor": st.just(tensor), "kind": st.just(word), **last})
    requests = brute.requests(sch)
    name, word = arguments["tensor"], arguments["kind"]
    place = arguments[next(iter(last))]
    plain = isinstance(name, str) and isinstance(word, str)
    made = {k: v for k, v in requests.items() if plain and (k[0], k[2]) == (name, word)}
    if kind == "warp_request":
        if not made or not (whole(place, 0)):
            return tally.judge(d2ltvm.warp_request, {"sch": sch, **arguments}, REFUSED)

        def costs(r):
            if r.scope != "global":
                return len(r.first) > 0
            return r.cost in {brute.sectors(q, k[3]) for k, each in made.items() for q in each}

        return tally.judge(d2ltvm.warp_request, {"sch": sch, **arguments},
                           costs if place == 0 else EITHER)  # fmt: skip
    good = made and all(k[1] == "global" for k in made)
    origin = isinstance(place, tuple | list) and len(place) == 3 and not any(
        isinstance(b, bool) for b in place) and tuple(place) == (0, 0, 0)  # fmt: skip

    def times(r):
        return r.sum() > 0 and r.dtype == np.int64 and (r >= 0).all()

    tally.judge(d2ltvm.touched, {"sch": sch, **arguments},
                (times if origin else EITHER) if good else REFUSED)  # fmt: skip


def requests(tally, draw):
    """Sectors and passes over banks, of random addresses, against counting them."""
    width = draw(st.sampled_from([1, 2, 4, 8, 16]))
    count = draw(st.integers(1, 3))
    seed, far = draw(st.integers(0, 2**16)), draw(st.sampled_from([4, 40, 4000]))
    rng = np.random.default_rng(seed)
    first = rng.integers(0, far, (count, 32)) * width
    if draw(st.booleans()):
        first = (np.arange(32) * draw(st.integers(0, 40)) * width)[None].repeat(count, 0)
    active = rng.random((count, 32)) < draw(st.sampled_from([0.1, 0.9, 2]))
    rows = [
        {k: int(a) for k, a in enumerate(row) if on[k]}
        for row, on in zip(first, active, strict=True)
    ]
    tally.judge(
        coalescing.sectors, {"first": first, "active": active, "width": width},
        lambda r: r.tolist() == [brute.sectors(row, width) for row in rows],
    )  # fmt: skip
    tally.judge(
        coalescing.wavefronts,
        {"first": first, "active": active, "width": width, "kind": "write"},
        lambda r: [*zip(*map(list, r), strict=True)] == [brute.wavefronts(q, width) for q in rows],
    )  # fmt: skip


GPUS = ("T4", "A100", "H100", "H200")


def occupancy(tally, draw):
    """Against putting blocks on an SM one after the other, as long as they fit."""
    grid = st.one_of(st.none(), sizes(most=999), st.tuples(sizes(), sizes(), sizes(most=2)))
    arguments = spoiled(draw, {
        "gpu": st.sampled_from(GPUS), "threads": sizes(1, 1024), "registers": sizes(1, 255),
        "shared": st.one_of(st.just(0), sizes(0, 64 * 1024)), "grid": grid,
    })  # fmt: skip
    gpu, threads, registers, shared, grid = arguments.values()
    try:
        chip = chips.CHIPS[gpu]
    except (KeyError, TypeError):
        return tally.judge(d2ltvm.occupancy, arguments, REFUSED, words=("name",))
    blocks = [grid] if not isinstance(grid, tuple | list | np.ndarray) else list(np.ravel(grid)) \
        if isinstance(grid, np.ndarray) else list(grid)  # fmt: skip
    good = whole(threads, 1, 1024) and whole(registers, 1, 255)
    good = good and whole(shared, 0, chip.shared_block_kib * 1024)
    good = good and (grid is None or (blocks and all(whole(b, 1, 10**99) for b in blocks)))

    def expected(r):
        warps = -(-int(threads) // 32)
        count = 0
        while fits(chip, count + 1, warps, int(registers), int(shared)):
            count += 1
        waves = None
        if grid is not None and count:
            waves = math.prod(map(int, blocks)) / (count * chip.sms)
        assert r.blocks == count and r.warps == count * warps
        assert math.isclose(r.share, count * warps * 32 / chip.max_threads)
        return r.waves == waves or math.isclose(r.waves, waves)

    tally.judge(d2ltvm.occupancy, arguments, expected if good else REFUSED)


def fits(chip, blocks, warps, registers, shared):
    """Whether an SM holds so many blocks: threads, blocks, registers by quarter, shared memory."""
    turing = chip.capability == "sm_75"
    piece = 256 if turing else 128
    each = -(-(shared + (0 if turing else 1024)) // piece) * piece
    a_warp = -(-registers * 32 // 256) * 256
    quarter = chip.registers_kib * 256 // 4 // a_warp  # warps that a quarter of the SM can have
    return (
        blocks * warps * 32 <= chip.max_threads
        and blocks <= chip.max_blocks
        and blocks * warps <= 4 * quarter
        and blocks * each <= chip.shared_kib * 1024
    )


def sheets(tally, draw):
    names = [*GPUS, "NVIDIA A100-SXM4-80GB", "Tesla T4", "h200", "H2000", "T4x", "A 100"]
    name = draw(mostly(st.sampled_from(names), st.one_of(st.text(max_size=5), ODD)))
    function = draw(st.sampled_from(["chip", "sm_count", "table", "report"]))
    words = name.replace("-", " ").split() if isinstance(name, str) else []
    known = [gpu for gpu in GPUS if gpu in words]
    if function == "table":
        names = draw(mostly(st.lists(st.sampled_from(GPUS), max_size=3)))
        good = isinstance(names, tuple | list) and len(names) and all(n in GPUS for n in names)

        def whole_table(r):
            return {line.count("|") for line in r.splitlines()} == {len(names) + 2}

        expected = whole_table if good else REFUSED
        tally.judge(chips.table, {"names": names}, expected, words=("name",))
    elif function == "report":
        if not known:
            given = {"sch": schedules.one_thread_each(64), "gpu": name}
            tally.judge(d2ltvm.report, given, REFUSED, words=("name",))
    else:
        made = {"chip": lambda r: r.name == known[0], "sm_count": lambda r: r > 0}[function]
        argument = {"chip": "name", "sm_count": "default"}[function]
        expected = made if known else REFUSED
        tally.judge(getattr(chips, function), {argument: name}, expected, words=("name",))


def lanes(tally, draw):
    """Which lane has what: each element once; boxes as TMA has them; tiles and back."""
    what = draw(st.sampled_from(["box", "put", "tiles", "lanes", "gather"]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    if what == "lanes":
        name, shape = draw(st.sampled_from(
            [("lane_a", (16, 16)), ("lane_b", (16, 8)), ("lane_c", (16, 8)),
             ("accumulator", (64, 256)), ("swizzle_32b", (16, 16)),
             ("swizzle_128b", (8, 64))]))  # fmt: skip
        places = list(itertools.product(*map(range, shape)))

        def all_once(r):
            places_of = [(i, r(i, j)) if name == "swizzle_32b" else r(i, j) for i, j in places]
            return len(set(places_of)) == len(places)

        tally.judge(lambda name: getattr(layouts, name), {"name": name}, all_once)
    elif what == "gather":
        kind = draw(st.sampled_from(["matrix_a", "matrix_b", "accumulator"]))
        size = 8 if kind == "matrix_a" else draw(st.sampled_from([4, 8]))
        arguments = spoiled(
            draw, {"registers": st.just(rng.random((2, 32, size))), "kind": st.just(kind)}, most=1
        )
        r, kind = arguments.values()
        good = isinstance(r, np.ndarray) and r.ndim == 3 and r.shape[1:] in ((32, 4), (32, 8))
        good = good and isinstance(kind, str) and kind in ("matrix_a", "matrix_b", "accumulator")
        good = good and (kind != "matrix_a" or r.shape[2] == 8)

        def back(matrices):
            again = np.zeros_like(r)
            layouts.scatter(matrices, again, kind)
            return np.array_equal(again, r)

        tally.judge(layouts.gather, arguments, back if good else REFUSED)
    elif what == "tiles":
        shape = draw(st.sampled_from([(8, 64), (2, 4, 64), (16, 64), (8, 32), (3, 64), (64,)]))
        arguments = spoiled(draw, {"values": st.just(rng.random(shape))}, most=1)
        v = arguments["values"]
        good = isinstance(v, np.ndarray) and v.ndim and v.shape[-1] == 64 and v.size % 512 == 0
        good = good and v.size

        def placed(memory):
            rows = v.reshape(-1, 64)
            return all(
                memory[layouts.swizzle_128b(i, j)] == rows[i, j] for i, j in np.ndindex(rows.shape)
            )

        tally.judge(layouts.tiles, arguments, placed if good else REFUSED)
    else:
        boxed(tally, draw, what, rng)


def boxed(tally, draw, what, rng):
    """Boxes that are fetched, and stored, element by element."""
    rank = draw(st.integers(1, 3))
    tensor = rng.random(tuple(draw(st.integers(1, 5)) for _ in range(rank)))
    corner = st.lists(st.integers(-6, 8), min_size=rank, max_size=rank)
    shape = st.lists(st.integers(1, 5), min_size=rank, max_size=rank)
    values = rng.random(tuple(draw(shape)))
    last = {"shape": shape} if what == "box" else {"values": st.just(values)}
    valid = {"tensor": st.just(tensor.copy()), "corner": corner, **last}
    arguments = spoiled(draw, valid, odd=ODD.filter(lambda v: not whole(v, 2**20)))
    t, c, v = arguments.values()
    good = isinstance(t, np.ndarray) and isinstance(c, tuple | list)
    good = good and t.ndim == len(c) and all(whole(n, -(2**40), 2**40) for n in c)
    before = t.copy() if good else None

    def at(array, place):
        inside = all(0 <= k < n for k, n in zip(place, array.shape, strict=True))
        return array[place] if inside else None

    def fetched(r):
        for here in np.ndindex(*v):
            found = at(t, tuple(a + b for a, b in zip(here, c, strict=True)))
            assert r[here] == (0 if found is None else found)
        return r.shape == tuple(v)

    def stored(_):
        for there in np.ndindex(t.shape):
            found = at(v, tuple(a - b for a, b in zip(there, c, strict=True)))
            assert t[there] == (before[there] if found is None else found)
        return True

    if what == "box":
        good = good and isinstance(v, tuple | list) and len(v) == t.ndim
        good = good and all(whole(n, 0) for n in v) and t.dtype.kind in "fiu"
        tally.judge(layouts.box, arguments, fetched if good else REFUSED)
        return
    good = good and isinstance(v, np.ndarray) and v.ndim == t.ndim
    good = good and (t.dtype.kind == "f" or t.dtype == v.dtype) and v.dtype.kind in "fiu"
    tally.judge(layouts.put, arguments, stored if good else REFUSED)


EIGHTS = sizes(most=20).map(lambda n: n * 8)
SHAPE = {
    "batch": sizes(most=300), "oc": EIGHTS, "ic": EIGHTS, "n": sizes(3, 30), "k": sizes(most=3),
    "p": sizes(0, 1), "s": sizes(most=2),
}  # fmt: skip


def is_conv(shape):
    batch, oc, ic, n, k, p, s = shape
    good = all(map(whole, (batch, oc, ic, n, k, s))) and whole(p, 0)
    return good and oc % 8 == ic % 8 == 0 and p < k <= n + 2 * p


TILES = [(128, 1, 1), (1, 8, 16), (2, 8, 8)]


def plan(tally, draw):
    """Plans for Hopper: tiles cover all pixels and channels, and slots fit into shared memory."""
    shape = spoiled(draw, SHAPE)
    numbers = tuple(shape.values())
    if draw(st.integers(0, 19)) == 0:
        numbers = draw(st.one_of(ODD, st.just(numbers[:3])))
    options = spoiled(draw, {
        "sms": st.one_of(st.none(), sizes(most=132)),
        "columns": st.sampled_from([None, 64, 128, 256]),
        "stages": st.sampled_from([None, None, 2, 3, 9]),
        "parts": st.sampled_from([None, None, 1, 2, 4]),
        "tile": st.sampled_from([None, None, None, *TILES, (3, 1, 1)]),
    })  # fmt: skip
    good = isinstance(numbers, tuple | list) and len(numbers) == 7 and is_conv(numbers)
    for name in ("sms", "columns", "stages", "parts"):
        good = good and (options[name] is None or whole(options[name]))
    columns, tile = options["columns"], options["tile"]
    good = good and (columns is None or columns in (64, 128, 256))
    good = good and (tile is None or (isinstance(tile, tuple) and tile in TILES))

    def expected(r):
        batch, oc, ic, n, k, p, s = map(int, numbers)
        o = len(range(0, n + 2 * p - k + 1, s))
        pixels = r.down * r.tile[0] * r.high * r.tile[1] * r.wide * r.tile[2]
        assert math.prod(r.tile) == 128 and r.columns in (64, 128, 256)
        assert r.shape.batch * r.shape.o**2 == batch * o * o <= pixels
        assert r.across * r.columns >= oc > (r.across - 1) * r.columns
        assert r.tiles == r.down * r.high * r.wide * r.across
        slots = r.stages * (128 + r.columns) * 64 * 2
        assert slots + 128 * r.columns * 2 // r.parts + 1024 <= 227 * 1024 and r.stages >= 2
        assert r.down % r.group == 0 and 1 <= r.blocks <= r.tiles
        return r.chunks * 64 >= ic

    # So many stages may not fit, so many parts not divide, and such a tile not go with a stride.
    plain = all(options[name] is None for name in ("stages", "parts", "tile")) if good else True
    tally.judge(
        planning.plan_conv, {"shape": numbers, **options},
        (expected if plain else Maybe(expected)) if good else REFUSED,
        words=tuple(SHAPE),
    )  # fmt: skip


def tiling(tally, draw):
    """The tile that a plan begins with is one of the fewest."""
    arguments = {
        "batch": draw(sizes(most=300)),
        "o": draw(sizes(most=60)),
        "s": draw(sizes(most=3)),
    }
    batch, o, s = map(int, arguments.values())

    def count(tile):
        return math.prod(-(-a // b) for a, b in zip((batch, o, o), tile, strict=True))

    def fewest(tile):
        if s > 1 or o == 1:
            return tile == (128, 1, 1)
        powers = [2**k for k in range(8)]
        every = [t for t in itertools.product(powers, repeat=3) if math.prod(t) == 128]
        every = [t for t in every if t[0] * t[1] > 1]
        return tile in every and count(tile) == min(map(count, every))

    tally.judge(planning.tile_pixels, arguments, fewest)


def hopper_kernels(tally, draw):
    """Kernels for Hopper: what is refused, and what they take."""
    if draw(st.booleans()):
        arguments = spoiled(draw, {
            "n": sizes(most=300), "m": EIGHTS, "l": EIGHTS,
            "columns": st.sampled_from([None, 64, 128]), "stages": st.sampled_from([None, 2]),
            "parts": st.none(), "sms": sizes(most=132),
        })  # fmt: skip
        n, m, l = (arguments[k] for k in "nml")
        good = whole(n) and whole(m) and whole(l) and m % 8 == l % 8 == 0
        good = good and max(n, m, l) <= planning.LARGEST_SIZE
        function, wanted = hopper.matmul_nt, [(n, l), (m, l), (n, m)]
    else:
        arguments = {**spoiled(draw, SHAPE), "sms": draw(st.sampled_from([4, 132]))}
        good = is_conv([arguments[k] for k in SHAPE])
        if good and max(int(arguments[k]) for k in SHAPE) > 2**12:
            return
        function = draw(st.sampled_from([hopper.conv_nhwc, float32.conv_float32]))
        batch, oc, ic, n, k, p, s = (arguments[key] for key in SHAPE)
        o = good and (n + 2 * p - k) // s + 1
        two = (2,) if function is float32.conv_float32 else ()
        wanted = [(*two, batch, n, n, ic), None, (batch, o, o, oc)]

    def takes(r):
        params = d2ltvm.compiler.lowering.parameters(tvm.IRModule({"main": r}))
        return all(w is None or p.shape == w for p, w in zip(params, wanted, strict=True))

    others = [arguments[k] for k in ("columns", "stages", "parts", "sms") if k in arguments]
    good = good and all(v is None or whole(v) for v in others)
    columns = arguments.get("columns")
    good = good and (columns is None or columns in (64, 128, 256))
    sure = good and all(arguments.get(k) is None for k in ("stages", "parts"))
    tally.judge(function, arguments, (takes if sure else Maybe(takes)) if good else REFUSED)


def pieces(tally, draw):
    """What splits float32 into two float16: the power of two, and the schedule."""
    if draw(st.booleans()):
        floats = st.floats(-(2.0**99), 2.0**99, width=32)
        some = st.lists(floats, max_size=4).map(lambda v: np.array(v, "float32"))
        values = draw(mostly(some))
        good = isinstance(values, np.ndarray) and values.dtype.kind in "fiu"
        good = good and np.isfinite(values).all()

        def largest(r):
            most = float(np.abs(values).max(initial=0)) * r
            whole_bits = most == 0 or 2**14 <= most <= 2**15 or r == 2.0**127
            return math.frexp(r)[0] == 0.5 and whole_bits

        tally.judge(float32.power_of_two, {"values": values}, largest if good else REFUSED)
        return
    arguments = spoiled(draw, {
        "shape": st.lists(sizes(most=6), min_size=1, max_size=3).map(lambda s: (*s, 4)),
        "scale": st.sampled_from([1.0, 2.0**-3, 2.0**20]),
    })  # fmt: skip
    shape, scale = arguments.values()
    good = isinstance(shape, tuple | list) and shape and all(map(whole, shape))
    good = good and math.prod(map(int, shape)) % 4 == 0 and math.prod(map(int, shape)) < 2**24
    number = isinstance(scale, int | float | np.number) and not isinstance(scale, bool | complex)
    good = good and number and 0 < scale < math.inf and math.frexp(scale)[0] == 0.5
    tally.judge(float32.split, arguments, EITHER if good else REFUSED)


GROUPS = {as_written: 4, requests: 5, occupancy: 8, sheets: 5, lanes: 6, plan: 8, tiling: 3,
          hopper_kernels: 1, pieces: 4}  # fmt: skip
