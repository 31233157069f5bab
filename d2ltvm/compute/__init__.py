"""What is computed, with nothing said of how: tensor expressions, their data and references.

Begin with `ops`: vectors, broadcasts, matrices. `convolution` is of one image, `conv_batch` of a
batch in the layouts of TVM's tutorials, `operators` are depthwise convolution, pooling and batch
normalisation, `reductions` sums of rows, softmax and layer norm, `data` makes random inputs.
"""

from d2ltvm import _lazy

__getattr__, __dir__, __all__ = _lazy.attach(__name__, __file__)
