# The figures; `__init__.py` loads them from here.

from .figures import banks as banks
from .shapes import window as window
from .widget import Explorer as Explorer
