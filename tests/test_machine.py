"""Accesses of machine code: against hardware counters, runs by threads, and Python's integers."""

import brute
import nasty
import numpy as np
import pytest
from tvm import te

import d2ltvm
from d2ltvm import schedules
from d2ltvm.analysis import accesses, coalescing, sass, sass_arithmetic, sass_interpreter
from d2ltvm.compiler import launches, lowering


def counts(table):
    """Counts by scope, kind and width; shared tensors cannot be told apart in machine code."""
    found = {}
    for t in table:
        key = (t.tensor if t.scope == "global" else "shared", t.kind, t.width)
        row = (t.requests, t.sectors, t.wavefronts, t.conflicts)
        found[key] = tuple(a + b for a, b in zip(found.get(key, (0,) * 4), row, strict=True))
    return found


@pytest.mark.quick(8)
@pytest.mark.parametrize("name", list(nasty.KERNELS)[::4])  # compiling takes seconds
def test_nasty_kernels_are_compiled_as_they_are_written(name):
    """Held to a run thread by thread in test_access.py; there is nothing here to join."""
    sch = nasty.KERNELS[name]()
    assert counts(d2ltvm.traffic(sch, "sm_90")) == counts(d2ltvm.traffic(sch))


@pytest.mark.parametrize("arch", ["sm_75", "sm_80"])
@pytest.mark.parametrize("name", ["stencil", "transpose 4 x 16"])
def test_other_architectures_ask_for_the_same(name, arch):
    sch = nasty.KERNELS[name]()
    assert counts(d2ltvm.traffic(sch, arch)) == counts(d2ltvm.traffic(sch))


COUNTED = [
    ("vector_add/counters", schedules.one_thread_each, 2**22),
    ("vector_add/counters", schedules.vectorized, 2**22),
    ("vector_add/counters", schedules.unrolled, 2**22),
    ("broadcast_add/counters", schedules.continuous_parallel, 2048),
    ("broadcast_add/counters", schedules.alternate_parallel, 2048),
    ("broadcast_add/counters", schedules.bcast_rows, 2048),
]


@pytest.mark.parametrize("record, schedule, n", COUNTED)
def test_the_counters_of_an_h200_agree(record, schedule, n):
    table = d2ltvm.traffic(schedule(n), "sm_90")
    counted = d2ltvm.load_record(record, "nvidia-h200")[schedule.__name__]
    assert (*table.total("read"), *table.total("write")) == tuple(counted[:4])


def test_the_compiler_joins_and_keeps():
    """Each thread reads eight neighbours in a loop, twice: the code says 16 loads, two are made."""
    A = te.placeholder((1024 * 8,), name="A")
    k = te.reduce_axis((0, 8), name="k")
    C = te.compute((1024,), lambda i: te.sum(A[i * 8 + k] * A[i * 8 + k], axis=k), name="C")
    sch = d2ltvm.schedule([A, C])
    block = sch.get_sblock("C")
    bx, tx = sch.split(sch.get_loops(block)[0], [None, 64])
    sch.bind(bx, "blockIdx.x")
    sch.bind(tx, "threadIdx.x")
    sch.reverse_compute_at(sch.cache_write(block, 0, "local"), tx)
    written, made = (d2ltvm.traffic(sch, arch) for arch in (None, "sm_90"))
    assert written.total("read")[0] == 8 * 32
    assert made.total("read")[0] <= written.total("read")[0]
    touched = {first for r in brute.requests(sch)["A", "global", "read", 4] for first in r.values()}
    assert len(touched) == 1024 * 8  # all of A, whatever the widths
    moved = sum(t.requests * 32 * t.width for t in made if t.kind == "read")
    assert moved == 4 * len(touched)


def test_blocks_of_one_kind_are_run_once():
    lowered = lowering.lower(
        lowering.as_module(schedules.partitioned(2**20 + 3)), d2ltvm.system.as_target("sm_90")
    )
    (launch,) = lowered.launches
    walk = accesses.SiteVisitor(lowered.device_functions[launch.name].body)
    blocks, often = coalescing.Launched(walk, launch).block_classes()
    assert len(blocks) == 2 and sorted(often) == [1, 1024]


def test_an_address_that_depends_on_data_is_refused():
    sch = nasty.gather(64)
    with pytest.raises(NotImplementedError):
        d2ltvm.traffic(sch, "sm_90")


def test_architectures_that_are_not_followed_are_named():
    with pytest.raises(NotImplementedError, match="sm_100"):
        d2ltvm.traffic(schedules.one_thread_each(64), "sm_100")
    with pytest.raises(ValueError, match="sm_12"):
        d2ltvm.traffic(schedules.one_thread_each(64), "sm_12")


HEAD = ".text.main_kernel:\n"
LAUNCH = launches.Launch("main_kernel", (3, 2, 1), (8, 4, 2), ("A", "B"))


def run(*lines):
    """Registers and predicates of 64 threads in a block after some instructions."""
    text = HEAD + "".join(
        f"        /*{16 * k:04x}*/                   {line} ;\n" for k, line in enumerate(lines)
    )
    m = sass_interpreter.Machine(sass.parse(text), LAUNCH, np.array([[2, 1, 0]]), "sm_90")
    m.run()
    return m.operands


def test_threads_know_where_they_are():
    m = run(
        "S2R R0, SR_TID.X", "S2R R1, SR_TID.Y", "S2R R2, SR_TID.Z", "S2UR UR4, SR_CTAID.X", "EXIT"
    )
    thread = np.arange(64)
    assert (m.registers["R0"] == thread % 8).all() and (m.registers["R1"] == thread // 8 % 4).all()
    assert (m.registers["R2"] == thread // 32).all() and (m.registers["UR4"] == 2).all()


A, B, HIGH = 0x9E3779B9, 0xFFFFFFF0, 0x80000001
ARITHMETIC = [
    ("IADD3 R3, R0, -R1, RZ", A - B),
    ("IMAD R3, R0, -R1, R2", HIGH - A * B),
    ("IMAD R3, R0, R1, R2", A * B + HIGH),
    ("IMAD.HI R3, R0, R1, RZ", (A - 2**32) * (B - 2**32) >> 32),
    ("IMAD.HI.U32 R3, R0, R1, RZ", A * B >> 32),
    ("IMAD.HI.U32 R3, R0, R0, R1", (A * A + (HIGH << 32) + B) >> 32),
    ("IMAD.HI R3, R0, R0, R1", ((A - 2**32) ** 2 + (HIGH << 32) + B) >> 32),
    ("IMAD.SHL.U32 R3, R0, 0x10, RZ", A << 4),
    ("IADD3 R3, R0, -R1, R2", A - B + HIGH),
    ("LEA R3, R0, R1, 0x4", (A << 4) + B),
    ("LEA.HI R3, R0, R1, RZ, 0x1", (A >> 31) + B),
    ("LEA.HI.SX32 R3, R0, R1, 0x1c", (((A - 2**32) << 28) >> 32) + B),
    ("SHF.L.U32 R3, R0, 0x5, RZ", A << 5),
    ("SHF.R.U32.HI R3, RZ, 0x1f, R0", A >> 31),
    ("SHF.R.S32.HI R3, RZ, 0x3, R0", (A - 2**32) >> 3),
    ("LOP3.LUT R3, R0, R1, RZ, 0xc0, !PT", A & B),
    ("LOP3.LUT R3, R0, R1, R2, 0x96, !PT", A ^ B ^ HIGH),
    ("IMNMX R3, R0, R1, PT", min(A - 2**32, B - 2**32)),
    ("IMNMX.U32 R3, R0, R1, !PT", max(A, B)),
    ("SEL R3, R0, R1, !PT", B),
    ("HFMA2.MMA R3, -RZ, RZ, 0, 2.384185791015625e-07", 4),
    ("ULEA UR3, UR0, UR1, 0x18", None),
]


@pytest.mark.parametrize("other, expected", [("R1", True), ("RZ", False)])
def test_logic_says_whether_a_bit_is_left(other, expected):
    m = run(
        f"MOV R0, {A:#x}", f"MOV R1, {B:#x}", f"LOP3.LUT P0, RZ, R0, {other}, RZ, 0xc0, !PT", "EXIT"
    )
    assert (m.predicates["P0"] == expected).all()


def test_predicates_are_packed_into_a_register():
    compare = "ISETP.GT.U32.AND P5, PT, R0, 0x3, PT"
    m = run("S2R R0, SR_TID.X", compare, "MOV R1, 0xff", "P2R R3, PR, R1, 0x20", "EXIT")
    assert (m.registers["R3"] == 0xDF + 0x20 * (m.registers["R0"] > 3)).all()
    assert len(set(m.registers["R3"])) == 2


def test_a_comparison_has_a_second_result_that_is_the_opposite():
    m = run("S2R R0, SR_TID.X", "ISETP.GT.U32.AND P5, P6, R0, 0x3, PT", "EXIT")
    above = m.registers["R0"] > 3
    assert (m.predicates["P5"] == above).all() and (m.predicates["P6"] == ~above).all()
    assert above.any() and not above.all()


def test_a_guard_may_be_negated():
    m = run(
        "S2R R0, SR_TID.X", "ISETP.GT.U32.AND P0, PT, R0, 0x3, PT", "MOV R1, RZ",
        "@P0 MOV R1, 0x1", "MOV R2, RZ", "@!P0 MOV R2, 0x1", "EXIT",
    )  # fmt: skip
    assert (m.registers["R1"] == (m.registers["R0"] > 3)).all()
    assert (m.registers["R2"] == (m.registers["R0"] <= 3)).all()


def test_lanes_beyond_the_block_do_nothing():
    text = HEAD + "        /*0000*/                   EXIT ;\n"
    launch = launches.Launch("main_kernel", (1, 1, 1), (40, 1, 1), ())
    m = sass_interpreter.Machine(sass.parse(text), launch, np.array([[0, 0, 0]]), "sm_90")
    assert m.alive.tolist() == [True] * 40 + [False] * 24


@pytest.mark.parametrize("line, expected", ARITHMETIC, ids=lambda v: str(v)[:30])
def test_integer_instructions(line, expected):
    if expected is None:  # uniform registers are like the others
        m = run(f"UMOV UR0, {A:#x}", f"UMOV UR1, {B:#x}", line, "EXIT")
        assert (m.registers["UR3"] == ((A << 24) + B) % 2**32).all()
        return
    m = run(f"MOV R0, {A:#x}", f"MOV R1, {B:#x}", f"MOV R2, {HIGH:#x}", line, "EXIT")
    assert (m.registers["R3"] == expected % 2**32).all()


def test_addresses_of_64_bits():
    m = run(
        "LDC.64 R4, c[0x0][0x218]",
        "MOV R0, 0xfffffff0",
        "IMAD.WIDE R6, R0, 0x4, R4",
        "IADD3 R8, P0, R4, 0xfffffff0, RZ",
        "IADD3.X R9, RZ, R5, RZ, P0, !PT",
        "IADD3 R10, P1, R8, 0x20, RZ",
        "IADD3.X R11, RZ, R9, RZ, P1, !PT",
        "EXIT",
    )
    second = 2 * sass_arithmetic.TENSOR

    def pair(k):
        return int(m.registers[f"R{k}"][0]) + (int(m.registers[f"R{k + 1}"][0]) << 32)

    assert pair(6) == second - 64
    assert pair(8) == second + 0xFFFFFFF0
    assert pair(10) == second + 0xFFFFFFF0 + 0x20


def test_threads_part_and_meet_again():
    """A loop of as many rounds as the thread's number."""
    text = HEAD + "\n".join(
        [
            "        /*0000*/                   S2R R0, SR_TID.X ;",
            "        /*0010*/                   MOV R1, RZ ;",
            ".L_x_0:",
            "        /*0020*/                   ISETP.GE.AND P0, PT, R1, R0, PT ;",
            "        /*0030*/               @P0 BRA `(.L_x_1) ;",
            "        /*0040*/                   IADD3 R1, R1, 0x1, RZ ;",
            "        /*0050*/                   BRA `(.L_x_0) ;",
            ".L_x_1:",
            "        /*0060*/                   MOV R2, R1 ;",
            "        /*0070*/                   EXIT ;",
        ]
    )
    m = sass_interpreter.Machine(sass.parse(text), LAUNCH, np.array([[0, 0, 0]]), "sm_90")
    m.run()
    assert (m.operands.registers["R2"] == np.arange(64) % 8).all()


def test_prmt_takes_bytes_of_two_registers():
    m = run("MOV R1, 0x44332211", "MOV R2, 0x88776655", "PRMT R3, R1, 0x1054, R2", "EXIT")
    assert m.registers["R3"].tolist() == [0x22116655] * 64
    m = run("MOV R1, 0x7fff8001", "PRMT R3, R1, 0x9910, RZ", "PRMT R4, R1, 0xbb32, RZ", "EXIT")
    assert m.registers["R3"].tolist() == [0xFFFF8001] * 64
    assert m.registers["R4"].tolist() == [0x00007FFF] * 64
