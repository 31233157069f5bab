"""Figures that answer when touched, and kernels that run on the reader's GPU, in the page.

Begin with `figures`: a function for each, which is also here: `d2ltvm.explore.banks()`. They are
written in JavaScript (`js`), once, for the page, for Jupyter and for the still picture in a
notebook; `scripts` puts the modules together, `widget` shows them. Their arithmetic, `js/models`,
is held equal to the package's own by tests.
"""

from d2ltvm import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
