"""MetaSchedule's rules for TensorCores, with intrinsics that take no time to register.

TVM's own rules, named 'cuda-tensorcore', ask for intrinsics of `tvm.s_tir.tensor_intrin.cuda`. To
import that module takes ten seconds and more. These are the same rules with the package's five.
"""

from typing import Any

import tvm.s_tir.meta_schedule as ms
from tvm.s_tir.meta_schedule.schedule_rule import MultiLevelTilingTensorCore, ReuseType

from d2ltvm.schedules import tensor_intrinsics, wmma_intrinsics

TVMS = "cuda-tensorcore"  # what TVM calls its rules
FRAGMENT_PARTS = ("init", "load_a", "load_b", "compute", "store")


def rules() -> dict[str, Any]:
    """Schedule rules, post-processors and mutators, as `PostOrderApply` takes them.

    >>> [type(rule).__name__ for rule in rules()["sch_rules"]][:2]
    ['MultiLevelTilingTensorCore', 'ApplyCustomRule']

    The tiling is what TVM's rule of the kind asks for: blocks, warps and fragments in the structure
    'SSSRRSRS', copies to shared memory at the second 'R', and the result stored there too.
    """
    names = (*wmma_intrinsics.NAMES[:-1], wmma_intrinsics.STORE_SHARED)
    tensor_intrinsics.register(names)
    tiling = MultiLevelTilingTensorCore(
        intrin_groups=[dict(zip(FRAGMENT_PARTS, names, strict=True))],
        structure="SSSRRSRS",
        tile_binds=["blockIdx.y", "blockIdx.x", "threadIdx.y"],
        max_innermost_factor=4,
        vector_load_lens=[1, 2, 3, 4, 8, 16],
        reuse_read=ReuseType("must", [4], "shared.dyn"),
        reuse_write=ReuseType("must", [2], "shared.dyn"),
    )
    plain = ms.ScheduleRule.create("cuda")
    others = [rule for rule in plain if not isinstance(rule, ms.schedule_rule.MultiLevelTiling)]
    return {"sch_rules": [tiling, *others], "postprocs": TVMS, "mutator_probs": TVMS}
