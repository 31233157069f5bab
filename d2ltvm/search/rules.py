"""Which rule made which part of a sketch: MetaSchedule's `PostOrderApply`, one step at a time."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import tvm.s_tir.meta_schedule as ms
from tvm.s_tir import Schedule

from d2ltvm.search.spaces import Space

# Instructions that look something up and change nothing.
SILENT = ("GetSBlock", "GetLoops", "GetChildBlocks", "GetConsumers", "GetProducers")
QUIET = (
    "Annotate",
    "Reorder",
    "Fuse",
    "ComputeAt",
    "ReverseComputeAt",
)  # left out of a tree's text


@dataclass
class TreeNode:
    """A state of a schedule on the way from a computation to its sketches.

    Attributes:
        rule: the name of the rule that made it; '' for the computation itself.
        block: the block that the rule was applied to.
        added: the instructions that it added, by name, without those that only look something up.
        sch: the schedule.
        children: what further rules made of it; none for a sketch.
    """

    rule: str
    block: str
    added: list[str]
    sch: Any
    children: list["TreeNode"] = field(default_factory=list)

    def leaves(self) -> Iterator["TreeNode"]:
        """The sketches that come of it."""
        if not self.children:
            yield self
        for child in self.children:
            yield from child.leaves()

    def __str__(self) -> str:
        return "\n".join(_lines(self, ""))


def tree(space: Space) -> TreeNode:
    """How rules make the sketches of a space, as a tree.

    A rule that leaves a schedule as it is has no node.

    >>> print(tree(d2ltvm.search.space(d2ltvm.search.workload("matmul", 64), "llvm")))
    the computation
    ├── MultiLevelTiling on C: 3 SamplePerfectTile, 3 Split
    │   └── ParallelizeVectorizeUnroll on root: SampleCategorical
    ...

    Args:
        space: one that MetaSchedule's rules made.

    Returns:
        The `TreeNode` of the computation. Its leaves are the sketches.

    Raises:
        ValueError: the space was made by a function, not by rules.
    """
    generator = space.context.space_generator
    rules = list(generator.sch_rules or ())
    if not isinstance(generator, ms.space_generator.PostOrderApply):
        raise ValueError("space was made by a function; expected one that rules made")
    root = TreeNode("", "", [], Schedule(space.context.mod, seed=1))
    names = [str(block.name_hint) for block in _blocks(root.sch)]
    ends = [root]
    for rule in rules:
        title = type(rule).__name__
        for name in reversed(names):  # the last block first, as `PostOrderApply` goes
            ends = [new for end in ends for new in _applied(end, rule, title, name)]
    return root


def _applied(end: TreeNode, rule: Any, title: str, name: str) -> list[TreeNode]:
    """The nodes that a rule makes of one; itself where the rule has nothing to do."""
    if not any(str(block.name_hint) == name for block in _blocks(end.sch)):
        return [end]  # the block is gone: inlined, say
    sch = end.sch.copy()
    before = len(sch.trace.insts)
    block = sch.get_sblock(name)
    made = list(rule.apply(sch, block))
    nodes = []
    for new in made:
        insts = [str(inst.kind.name) for inst in new.trace.insts[before:]]
        nodes.append(TreeNode(title, name, [i for i in insts if i not in SILENT], new))
    if len(nodes) == 1 and not nodes[0].added:
        return [end]
    end.children = nodes
    return nodes


def _blocks(sch: Any) -> list[Any]:
    """The blocks of a schedule, from the first to the last, and the root behind them."""
    root = sch.get_sblock("root")
    return [*(sch.get(block) for block in sch.get_child_blocks(root)), sch.get(root)]


def _lines(node: TreeNode, margin: str) -> Iterator[str]:
    """A node's subtree as text."""
    if not node.rule:
        yield "the computation"
    for k, child in enumerate(node.children):
        last = k == len(node.children) - 1
        yield f"{margin}{'└── ' if last else '├── '}{child.rule} on {child.block}: {short(child)}"
        yield from _lines(child, margin + ("    " if last else "│   "))


def short(node: TreeNode) -> str:
    """What a rule added: decisions and copies with how often, and what its siblings differ in."""
    counts: dict[str, int] = {}
    for name in node.added:
        if name not in QUIET:
            counts[name] = counts.get(name, 0) + 1
    parts = [f"{n} {name}" if n > 1 else name for name, n in counts.items()]
    if node.rule.startswith("MultiLevelTiling"):
        parts.append(told(node))
    return ", ".join(filter(None, parts)) or "nothing"


def told(node: TreeNode) -> str:
    """What a sketch does beside tiling: copies, at which loop the result is written, a pipeline."""
    said = []
    copies = node.added.count("CacheRead")
    if copies:
        said.append("shared copies")
    if "ReverseComputeAt" in node.added:
        written = _blocks(node.sch)[-2].name_hint
        depth = len(node.sch.get_loops(node.sch.get_sblock(written)))
        said.append(f"result at depth {depth}")
    for inst in node.sch.trace.insts:
        if str(inst.kind.name) == "Annotate" and str(inst.attrs[0]) == "software_pipeline_stage":
            said.append(f"{int(list(inst.inputs[1])[-1])} rounds ahead")
    return "; ".join(said)


def picture(node: TreeNode) -> tuple[str, str, tuple[Any, ...]]:
    """A node's subtree for `d2ltvm.figures.draw_tree`."""
    text = "the computation"
    if node.rule.startswith("MultiLevelTiling"):
        structure = next(
            str(inst.inputs[1])
            for inst in node.sch.trace.insts
            if str(inst.kind.name) == "Annotate"
            and str(inst.attrs[0]) == "meta_schedule.tiling_structure"
        )
        text = "\n".join(filter(None, [f"tiles {structure}", *told(node).split("; ")]))
    elif node.rule == "AutoInline":
        text = f"{node.block}\ninlined"
    elif node.rule == "RandomComputeLocation":
        text = f"{node.block}\nat loop ?"
    elif node.rule == "ParallelizeVectorizeUnroll":
        on_gpu = "Bind" in [str(inst.kind.name) for inst in node.sch.trace.insts]
        text = "unrolled to ?" if on_gpu else "parallel, vectors,\nunrolled to ?"
    elif node.rule:
        text = "\n".join(short(node).split(", "))
    children = tuple(picture(child) for child in node.children)
    return WORDS.get(node.rule, node.rule), text, children


# A rule's name on an arrow, in lines that fit there.
WORDS = {
    "MultiLevelTiling": "MultiLevel\nTiling",
    "ParallelizeVectorizeUnroll": "Parallelize\nVectorize\nUnroll",
    "RandomComputeLocation": "Random\nCompute\nLocation",
    "AutoInline": "Auto\nInline",
}
