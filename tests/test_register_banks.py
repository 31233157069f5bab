"""Multiply-adds that wait for their operands, in machine code."""

import pytest

import d2ltvm
from d2ltvm import schedules
from d2ltvm.analysis import register_banks


def loop(*operands, before="", behind=""):
    """A disassembly with one loop of multiply-adds."""
    lines = [*([before] if before else []), *(f"FFMA.FTZ {text}" for text in operands)]
    lines += [*([behind] if behind else []), "@P0 BRA `(.L_x_0)", "EXIT"]
    code = [f"        /*{16 * k:04x}*/                   {text} ;" for k, text in enumerate(lines)]
    return "\n".join([".text.main_kernel:", ".L_x_0:", *code])


@pytest.mark.parametrize(
    ("operands", "waits"),
    [
        (["R0, R1, R2, R3"], 1),  # 1 and 3 are both odd
        (["R0, R2, R4, R6"], 2),
        (["R0, R1, R2, R2"], 0),  # the same register is read once
        (["R1, R1, 0.5, R2"], 0),  # a constant is not read
        (["R0, R1.reuse, R2, R5", "R4, R1, R2, R3"], 1),  # the second one has R1 already
        (["R0, R1.reuse, R2, R5", "R4, R2, R1, R3"], 2),  # in another place it has not
        (["R0, -R1, R2, R4", "R0, RZ, R2, R5"], 1),
    ],
)
def test_operands_of_one_bank_wait_for_each_other(operands, waits):
    found = register_banks.main_loop(loop(*operands))
    assert found == register_banks.Loop(len(operands) + 1, len(operands), waits)
    assert found.share == len(operands) / (len(operands) + 1 + waits)


def test_what_stands_between_forgets_what_was_kept():
    found = register_banks.main_loop(
        loop("R0, R1.reuse, R2, R4", before="MOV R1, R2", behind="LDS R1, [R2]")
    )
    assert (found.instructions, found.waits) == (4, 1)


def test_a_kernel_without_a_loop_is_refused():
    with pytest.raises(ValueError, match="no loop with FFMA"):
        register_banks.main_loop(loop("R0, R1, R2, R3").replace(".L_x_0)", ".L_x_1)"))
    with pytest.raises(ValueError, match="2 kernels; expected one"):
        register_banks.main_loop("\n".join([loop("R0, R1, R2, R3")] * 2))


def test_a_product_in_machine_code():
    sch = schedules.matmul_vthread(256, 256, 256)
    found = register_banks.main_loop(d2ltvm.build(sch, "sm_90").cubin("sm_90"))
    assert found.multiply_adds == 16 * 64  # steps of a round, elements of a thread
    assert 1.05 < found.instructions / found.multiply_adds < 1.2
    assert 0 < found.waits < found.multiply_adds
