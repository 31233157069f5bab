# The figures; `__init__.py` loads them from here.

from .figures import banks as banks
from .widget import Explorer as Explorer
