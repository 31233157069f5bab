# Measure there, build here; `__init__.py` loads it from here.

from .agreement import Agreement as Agreement, agreements as agreements
from .database import Database as Database, Result as Result
from .local import Fleet as Fleet, Server as Server, find as find, up as up
from .measuring import candidate_id as candidate_id, measure as measure
from .metaschedule import builder as builder, runner as runner
from .task import Clock as Clock, Limits as Limits
from .tracker import Address as Address, FleetError as FleetError
