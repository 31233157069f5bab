"""Time that passes only where a test says so."""

from d2ltvm.bench import d2l_names, hopper_layers, run
from d2ltvm.bench.measurement import as_clocks, legends
from d2ltvm.bench.timing import Timing


class FakeClock:
    """Takes the place of `time_together`.

    Attributes:
        now: seconds that were spent.
        asked: names and clocks, of each call.
    """

    def __init__(self, monkeypatch):
        self.now, self.asked = 0.0, []
        for module in (run, d2l_names, hopper_layers):
            monkeypatch.setattr(module, "time_together", self.time_together)

    def spend(self, seconds):
        self.now += seconds

    def time_together(self, runs, clock="graph"):
        """What each function spends, called once by each clock; a half to the double of it."""
        self.asked.append((list(runs), clock))
        found = {}
        for k, _ in enumerate(as_clocks(clock)):
            for name, function in runs.items():
                start = self.now
                function()
                spent = self.now - start
                found[legends(name, clock)[k]] = Timing(spent, spent / 2, spent * 2)
        return found
