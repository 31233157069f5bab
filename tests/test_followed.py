"""The fourth judge: a warp followed through machine code, and the time that is made of it."""

from dataclasses import asdict, replace

import numpy as np
import pytest

import d2ltvm
from d2ltvm.compiler import sass_text
from d2ltvm.compiler.launches import Launch
from d2ltvm.search import (
    followed,
    judged,
    measured,
    pipes,
    predict,
    rank_correlation,
    regret,
    space,
    waits,
    workload,
)

LAUNCH = Launch("k", (4, 1, 1), (64, 1, 1), ("A",))
TENSORCORES = workload("tensorcores", 64)

LOOP = """
 MOV R2, 0x0
.L_1:
 LDG.E R4, desc[UR4][R6.64]
 STS [R9], R4
 IADD3 R2, R2, 0x1, RZ
 ISETP.NE.AND P0, PT, R2, 0x5, PT
 @P0 BRA `(.L_1)
 EXIT
"""
BRANCH = """
 S2R R0, SR_TID.X
 ISETP.GT.U32.AND P0, PT, R0, 0x20, PT
 @P0 BRA `(.L_1)
 LDG.E R4, desc[UR4][R6.64]
.L_1:
 EXIT
"""
# A loop's counter that has no register, and four words that have none.
SPILLED = """
 MOV R2, 0x0
 STL [R1+0x4], R2
.L_1:
 LDL R3, [R1+0x4]
 IADD3 R3, R3, 0x1, RZ
 STL [R1+0x4], R3
 LDL.128 R4, [R1+0x10]
 ISETP.NE.AND P0, PT, R3, 0x3, PT
 @P0 BRA `(.L_1)
 EXIT
"""
ENDLESS = """
.L_1:
 MOV R2, 0x0
 ISETP.NE.AND P0, PT, R2, 0x5, PT
 @P0 BRA `(.L_1)
 EXIT
"""


def assembled(text):
    """Instructions as `nvdisasm` prints them."""
    lines, address = [".text.k:"], 0
    for line in text.strip("\n").splitlines():
        if line.startswith("."):
            lines.append(line)
        else:
            lines.append(f"        /*{address:04x}*/  {line.strip()} ;")
            address += 16
    (section,) = sass_text.sections("\n".join(lines))
    return followed._steps(section)


def of(text, launch=LAUNCH):
    return followed._followed(assembled(text), launch)


def test_a_loop_is_followed_and_each_load_of_it_waits_for_itself():
    assert followed._counts(assembled(LOOP), LAUNCH) == [1, 5, 5, 5, 5, 5, 1]
    found = of(LOOP)
    assert (found["issued"], found["memory"], found["shared"], found["spilled"]) == (27, 5, 5, 0)
    # Of a round: the load starts, the store waits for it, one addition starts, and the comparison
    # and the branch wait four cycles each for the one before.
    assert found["cycles"] == 1 + 5 * (1 + 251 + 1 + 4 + 4) + 1
    (load,) = followed._loads(assembled(LOOP), LAUNCH)
    assert load == followed.GlobalLoad(5, 1, 252)


def test_loads_ahead_of_their_stores_are_on_their_way_together():
    loads = [f" LDG.E R{10 + k}, desc[UR4][R6.64]" for k in range(8)]
    stores = [f" STS [R9], R{10 + k}" for k in range(8)]
    each = [line for pair in zip(loads, stores, strict=True) for line in pair]
    together, apart = (of("\n".join([*some, " EXIT"])) for some in (loads + stores, each))
    assert together["issued"] == apart["issued"] == 17
    assert (together["cycles"], apart["cycles"]) == (251 + 8 + 1, 8 * (251 + 1) + 1)


@pytest.mark.parametrize("threads, memory", [(64, 1), (128, 0)])
def test_a_branch_goes_as_the_thread_in_the_middle_does(threads, memory):
    # Thread 31 of 64, and 63 of 128: the branch is taken from 33 on.
    assert of(BRANCH, replace(LAUNCH, block=(threads, 1, 1)))["memory"] == memory


def test_words_of_the_stack_are_followed_and_counted():
    found = of(SPILLED)
    assert found["issued"] == 2 + 3 * 6 + 1
    assert found["spilled"] == 1 + 3 * (1 + 1 + 4)
    # Of each word that a round waits for: the counter, from L2 and not from L1.
    assert found["far"] - found["cycles"] == 3 * (followed.FROM_L2 - followed.FROM_L1)


def test_code_that_does_not_end_is_refused(monkeypatch):
    monkeypatch.setattr(followed, "MOST_STEPS", 100)
    with pytest.raises(NotImplementedError, match="k has not ended after 100 instructions"):
        of(ENDLESS)


@pytest.mark.parametrize("load", ["LDG.E R2, desc[UR4][R6.64]", "LDL R2, [R1+0x4]"])
def test_a_branch_on_what_is_loaded_is_refused(load):
    text = f"""
 {load}
 ISETP.NE.AND P0, PT, R2, 0x5, PT
 @P0 BRA `(.L_1)
 STG.E desc[UR4][R6.64], R2
.L_1:
 EXIT
"""
    with pytest.raises(NotImplementedError, match=f"branch of k depends on {load[:3]}"):
        of(text)


def test_a_kernel_of_the_book():
    (code,) = followed.followed(workload("matmul", 64).by_hand("cuda")["naive"]())
    assert (code.memory, code.shared, code.fragments, code.spilled) == (2 * 64 + 1, 0, 0, 0)
    assert code.issued > 64 * 3 and code.cycles > 251


def test_predict_asks_the_fourth_judge():
    work = workload("matmul", 64)
    sch = work.by_hand("cuda")["naive"]()
    assert predict(sch, work, judge="fourth") == waits.seconds(waits.looked_at(sch))
    with pytest.raises(ValueError, match=r"'fifth'.*'fourth'"):
        predict(sch, work, judge="fifth")


IDLE = pipes.Piped(
    **dict.fromkeys(pipes.Piped.__dataclass_fields__, 0)
    | {"blocks": 264, "threads": 128, "stages": 1}
)
STILL = followed.Followed(**dict.fromkeys(followed.Followed.__dataclass_fields__, 0))
STILL = replace(STILL, registers=64)


def cycles(more=None, code=None):
    """What a kernel takes besides its start: of two blocks an SM, of four warps each."""
    kernel = replace(IDLE, **more or {}), replace(STILL, **code or {})
    return (waits.seconds([kernel]) - judged.LAUNCH) * judged.CLOCK


@pytest.mark.parametrize(
    "more, code, takes",
    [
        ({}, {"issued": 10**5}, 2 * 4 * 10**5 / 4),
        ({}, {"cycles": 1000.0, "far": 1000.0}, 1000),
        ({}, {"issued": 10**5, "cycles": 1e3, "far": 1e3}, 2 * 10**5 + 1000),
        ({}, {"spilled": 10**4}, 2 * 4 * 10**4),
        ({"wavefronts": 264 * 10**3, "lines": 264 * 10**3}, {}, 2 * 2 * 10**3),
        ({"special": 10**4}, {}, 2 * 4 * 10**4 * 32 / 16),
        ({"nbytes": 10**9}, {}, 10**9 / 4.26e12 * 1.755e9),
    ],
)
def test_what_each_part_of_the_fourth_judge_takes(more, code, takes):
    assert cycles(more, code) == pytest.approx(takes, rel=1e-6)


def test_a_longer_latency_takes_longer_and_more_warps_hide_it():
    slow, slower = ({"cycles": n, "far": n} for n in (1e4, 2e4))
    assert cycles(code=slower) == pytest.approx(2 * cycles(code=slow))
    # With 256 threads of 255 registers an SM has room for one block, and so takes two waves.
    alone = cycles({"threads": 256}, {**slow, "registers": 255})
    assert alone == pytest.approx(2 * cycles({"threads": 256}, {**slow, "registers": 64}))
    assert waits.seconds([(replace(IDLE, shared=300 * 1024), STILL)]) == float("inf")


def test_words_that_l1_has_no_room_for_come_from_l2():
    # 4 KiB of each of 256 threads are 1 MiB. L1 has 256 KiB, less the 8 that are set aside for what
    # the system takes of two blocks.
    assert d2ltvm.chip("H200").l1_kib == 256
    code = replace(STILL, local=4096, spilled=100, cycles=1000.0, far=3000.0)
    share = 1 - 248 / 1024
    assert waits.far_share(IDLE, code, "H200", 2) == share
    assert waits.far_share(replace(IDLE, shared=90 * 1024), code, "H200", 2) > 0.9
    assert waits.far_share(IDLE, replace(code, local=0), "H200", 2) == 0
    busy = waits.of_block(IDLE, code, "H200", share)
    assert busy["data path"] == 100 * 4
    per_sector = 32 * 132 * judged.CLOCK / waits.CACHE
    assert busy["L2"] == pytest.approx(share * 100 * 4 * 4 * per_sector)
    took = cycles(code=asdict(code))
    assert took == pytest.approx(2 * max(busy.values()) + 1000 + share * 2000)


def test_the_fourth_judge_adds_kernels_up():
    one = IDLE, replace(STILL, issued=10**5)
    assert waits.seconds([one, one]) == pytest.approx(2 * waits.seconds([one]))


def test_stored_predictions_are_those_of_the_stored_counts():
    found = [one for one in measured.gathered(TENSORCORES) if one.origin != "by hand"]
    said = [waits.seconds(one.kernels) for one in found]
    assert said == pytest.approx([one.fourth for one in found], rel=1e-5)
    kept, named = measured.predictions(file=measured.FOURTH)
    assert named == kept


def test_the_fourth_judge_on_candidates_that_had_not_run():
    found = [one for one in measured.timed(TENSORCORES) if one.fourth]
    asked = [one for one in measured.gathered(TENSORCORES) if one.fourth]
    assert [one.key for one in found] == [one.key for one in asked]
    assert len(found) > 500 and not measured.failures(TENSORCORES)
    times, third, fourth = np.array([(c.seconds, c.third, c.fourth) for c in found]).T
    assert rank_correlation(third, times) < 0.7 <= rank_correlation(fourth, times)
    assert regret(fourth, times, 10) <= 1.1 < regret(third, times, 10)
    # The page says that these two parts matter.
    still = [
        waits.seconds([(c, replace(f, cycles=0.0, far=0.0)) for c, f in one.kernels])
        for one in found
    ]
    assert rank_correlation(still, times) < 0.7


@pytest.mark.slow
def test_a_candidate_is_counted_anew_as_it_was():
    found = [c for c in measured.gathered(TENSORCORES) if c.fourth]
    one = min(found, key=lambda c: c.kernels[0][1].issued)
    sch = measured.remade(one, space(TENSORCORES, "cuda"))
    assert waits.looked_at(sch) == one.kernels
    assert predict(sch, TENSORCORES, judge="third") == pytest.approx(one.third, rel=1e-5)
