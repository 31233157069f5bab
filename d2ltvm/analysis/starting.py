"""Two explanations of how fast blocks start: each multiprocessor has a pace, or the GPU has one."""

from collections.abc import Collection

from d2ltvm.analysis.in_flight import Spans

PACES = ("multiprocessor", "GPU")


def starts(
    pace_of: str, blocks: int, sms: int = 4, taken: Collection[int] = ()
) -> tuple[dict[str, Spans], int]:
    """When blocks start, and where, on multiprocessors of which some are taken.

    With all multiprocessors free both explanations say the same: one block in each unit of time.

    >>> starts("GPU", 12)[1], starts("multiprocessor", 12)[1]
    (12, 12)
    >>> starts("GPU", 12, taken=(2, 3))[1], starts("multiprocessor", 12, taken=(2, 3))[1]
    (12, 24)

    Args:
        pace_of: 'multiprocessor' if each of them starts a block in every `sms` units of time;
            'GPU' if one distributor starts a block in each unit of time, on all in turn.
        blocks: to start.
        sms: multiprocessors.
        taken: those that cannot take a block.

    Returns:
        Spans by multiprocessor, and the time in which all blocks have started, in whole turns.

    Raises:
        ValueError: the pace is neither's, or no multiprocessor is free.
    """
    free = [sm for sm in range(sms) if sm not in taken]
    if pace_of not in PACES or not free:
        raise ValueError(f"pace_of is {pace_of!r}, {len(free)} free; expected one of {PACES}, 1")
    turn = sms if pace_of == "multiprocessor" else len(free)
    end = -(-blocks // len(free)) * turn
    rows: dict[str, Spans] = {f"SM {sm}": [] for sm in range(sms)}
    for sm in range(sms):
        if sm in taken:
            rows[f"SM {sm}"].append((0, end, "taken"))
    for block in range(blocks):
        turns, place = divmod(block, len(free))
        start = turns * turn + place
        rows[f"SM {free[place]}"].append((start, start + 1, "a block starts"))
    return rows, end
