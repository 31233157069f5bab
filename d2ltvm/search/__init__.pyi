# What a search takes; `__init__.py` loads it from here.

from . import judged as judged, rules as rules, text as text
from .workloads import Workload as Workload, workload as workload
from .spaces import Space as Space, decided as decided, moved_factor as moved_factor, space as space
from .book import book_space as book_space
from .rules import tree as tree
from .text import as_text as as_text
from .evolution import Candidate as Candidate, evolve as evolve
from .predicted import counted as counted, seconds as seconds
from .judged import predict as predict
from .learned import Ridge as Ridge, features as features
from .ranking import rank_correlation as rank_correlation, regret as regret
from .tune import Trial as Trial, curve as curve, foretold as foretold, search as search
from .measured import Timed as Timed, timed as timed
