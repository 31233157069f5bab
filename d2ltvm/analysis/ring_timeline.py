"""A ring of slots in time: when tiles come and go, who waits, and what a broken barrier does.

The kernels are those of `d2ltvm.hopper.ring` and of the products: a producer asks for tiles, a
consumer multiplies them, and each slot has two mbarriers, `full` and `empty`. Times are given, so
this is not a measurement: it says what follows from them. Barriers are the emulator's own.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from d2ltvm.analysis.emulator.order import SynchronizationError
from d2ltvm.analysis.emulator.shared import Barrier

Who = Literal["producer", "consumer"]
BOTH: tuple[Who, Who] = "producer", "consumer"

# What can be wrong with a ring, by name.
BROKEN = {
    "nothing": "as it is",
    "full": "the consumer does not wait for full",
    "empty": "the producer does not wait for empty",
    "back": "the consumer hands nothing back",
    "consumer": "the consumer's parity is not flipped at the end of the ring",
    "producer": "the producer's parity is not flipped at the end of the ring",
    "first": "the producer waits for the consumer's parity, so slots do not begin empty",
}


@dataclass
class Tile:
    """What becomes of a tile. Clocks are None where an event does not come.

    `held` is the tile that its slot held when the consumer took it, None while a copy was on its
    way; `right` says that it held this tile all the time that it was multiplied. `overwrites` says
    that the producer asked for it while the slot's tile before was still to be multiplied.
    """

    asked: int | None = None
    arrived: int | None = None
    taken: int | None = None
    done: int | None = None
    held: int | None = None
    right: bool = False
    overwrites: bool = False


class Wait(NamedTuple):
    """Someone waits, before a tile, for a parity; `until` is None where that is for ever."""

    who: Who
    tile: int
    parity: int
    since: int
    until: int | None


@dataclass
class Timeline:
    """What happens in a ring.

    `ends` is 'done'; 'deadlock'; 'overrun', where more arrive at a barrier than its phase expects;
    or 'early', where the kernel ends while copies are on their way. `full` and `empty` are, for
    each slot, the times at which the barrier's phase changes.
    """

    tiles: list[Tile]
    full: list[list[int]]
    empty: list[list[int]]
    waits: list[Wait] = field(default_factory=list)
    ends: Literal["done", "deadlock", "overrun", "early"] = "done"
    time: int = 0

    def waited(self, who: Who) -> int:
        """How long someone waits, up to the end."""
        ends = ((self.time if w.until is None else w.until, w) for w in self.waits)
        return sum(until - w.since for until, w in ends if w.who == who)


def ring_timeline(
    stages: int,
    rounds: int,
    transfer: int,
    latency: int,
    multiply: int,
    ask: int = 1,
    broken: str = "nothing",
) -> Timeline:
    """What happens in a ring, from the times that its parts take.

    >>> ring_timeline(2, 8, transfer=100, latency=700, multiply=500).time
    5700
    >>> ring_timeline(3, 8, transfer=100, latency=700, multiply=500).time
    4800
    >>> ring_timeline(3, 8, 100, 700, 500, broken="back").ends
    'deadlock'

    Args:
        stages: slots of the ring.
        rounds: tiles that come and go.
        transfer: cycles between two tiles that memory brings one behind the other.
        latency: cycles from the end of a tile's transfer to its arrival.
        multiply: cycles for which the consumer uses a slot.
        ask: cycles from one question of the producer to its next.
        broken: what is wrong, one of `BROKEN`.

    Raises:
        ValueError: a value is not as above.
    """
    for name, value in (("stages", stages), ("rounds", rounds), ("transfer", transfer),
                        ("multiply", multiply), ("ask", ask)):  # fmt: skip
        if value < 1:
            raise ValueError(f"{name} is {value}; expected a positive integer")
    if latency < 0:
        raise ValueError(f"latency is {latency}; expected an integer of at least 0")
    if broken not in BROKEN:
        raise ValueError(f"broken is {broken!r}; expected one of {', '.join(BROKEN)}")
    return _Ring(stages, rounds, (transfer, latency, multiply, ask), broken).run()


class _Ring:
    """A ring that turns, from one event to the next."""

    def __init__(
        self, stages: int, rounds: int, times: tuple[int, int, int, int], broken: str
    ) -> None:
        self.stages, self.rounds, self.broken = stages, rounds, broken
        self.transfer, self.latency, self.multiply, self.ask = times
        self.full = [Barrier(1) for _ in range(stages)]
        self.empty = [Barrier(1) for _ in range(stages)]
        self.holds: list[int | None] = [None] * stages
        self.copies: deque[tuple[int, int]] = deque()  # arrival, tile
        self.found = Timeline(
            [Tile() for _ in range(rounds)],
            [[] for _ in range(stages)],
            [[] for _ in range(stages)],
        )
        self.now = self.memory_free = 0
        self.next = {"producer": 0, "consumer": 0}  # a tile
        self.since = {"producer": 0, "consumer": 0}  # from when on it can go on, or waits
        self.busy: int | None = None  # the tile that is multiplied

    def run(self) -> Timeline:
        found = self.found
        try:
            while not self._over():
                able = [who for who in BOTH if self._able(who)]
                for who in able:
                    self._go_on(who)
                if not (later := self._later()):
                    found.ends = "deadlock"
                    break
                self.now = min(later)
                self._happen()
            else:
                found.ends = "early" if self.copies else "done"
        except SynchronizationError:
            found.ends = "overrun"
        found.time = self.now
        stuck = BOTH if found.ends == "deadlock" else ()
        found.waits += [self._wait(who, None) for who in stuck if self._waits(who)]
        return found

    def _over(self) -> bool:
        return self.busy is None and all(k == self.rounds for k in self.next.values())

    def _waits(self, who: Who) -> bool:
        """Whether it is at a wait, and not through or busy."""
        busy = who == "consumer" and self.busy is not None
        return self.next[who] < self.rounds and self.since[who] <= self.now and not busy

    def _able(self, who: Who) -> bool:
        """Whether it is at a wait that is over."""
        left_out = {"producer": "empty", "consumer": "full"}[who] == self.broken
        slot = self.next[who] % self.stages
        barrier = (self.empty if who == "producer" else self.full)[slot]
        return self._waits(who) and (left_out or barrier.phase != self._parity(who))

    def _parity(self, who: Who) -> int:
        """The parity of the phase that is to be over."""
        lap = 0 if self.broken == who else self.next[who] // self.stages
        return (lap + (who == "producer" and self.broken != "first")) % 2

    def _go_on(self, who: Who) -> None:
        """Past a wait: ask for a tile, or begin to multiply one."""
        tile = self.next[who]
        if self.now > self.since[who]:
            self.found.waits.append(self._wait(who, self.now))
        self.next[who] += 1
        if who == "producer":
            self._ask(tile)
        else:
            self._take(tile)

    def _wait(self, who: Who, until: int | None) -> Wait:
        return Wait(who, self.next[who], self._parity(who), self.since[who], until)

    def _ask(self, tile: int) -> None:
        slot, found = tile % self.stages, self.found.tiles
        before = tile - self.stages
        found[tile].asked, self.since["producer"] = self.now, self.now + self.ask
        found[tile].overwrites = before >= 0 and found[before].done is None
        self.holds[slot] = None
        self.full[slot].nbytes += 1  # a tile's, here
        self.full[slot].arrive(1)
        self.memory_free = max(self.memory_free, self.now) + self.transfer
        self.copies.append((self.memory_free + self.latency, tile))

    def _take(self, tile: int) -> None:
        found, slot = self.found.tiles[tile], tile % self.stages
        found.taken, found.held = self.now, self.holds[slot]
        self.busy, self.since["consumer"] = tile, self.now + self.multiply

    def _later(self) -> list[int]:
        """When something is going to happen by itself."""
        times = [arrival for arrival, _ in self.copies]
        if self.busy is not None:
            times.append(self.since["consumer"])
        if self.next["producer"] < self.rounds and self.since["producer"] > self.now:
            times.append(self.since["producer"])
        return times

    def _happen(self) -> None:
        """What is due now: copies arrive, and the consumer is through with a tile."""
        while self.copies and self.copies[0][0] == self.now:
            _, tile = self.copies.popleft()
            slot = tile % self.stages
            self.holds[slot], self.found.tiles[tile].arrived = tile, self.now
            before = self.full[slot].phase
            self.full[slot].come(1)
            if self.full[slot].phase != before:
                self.found.full[slot].append(self.now)
        if self.busy is not None and self.since["consumer"] == self.now:
            tile, self.busy = self.busy, None
            slot, found = tile % self.stages, self.found.tiles[tile]
            found.done, found.right = self.now, found.held == self.holds[slot] == tile
            if self.broken != "back":
                self.empty[slot].arrive(1)
                self.found.empty[slot].append(self.now)
