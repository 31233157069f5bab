"""What is computed, with nothing said of how: tensor expressions, their data and references.

Begin with `ops`: vectors, broadcasts, matrices. `convolution` is of one image, `conv_batch` of a
batch in the layouts of TVM's tutorials, `data` makes random inputs.
"""
