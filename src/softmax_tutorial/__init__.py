"""The kernels that the site teaches with, each read from top to bottom; not installed with the
library.

- `reference`: the mathematics in NumPy and PyTorch
- the ladder, of which each rung changes one thing: `naive`, PyTorch's own lines; `single_block`;
  `three_loops`; `two_loops`. The rungs after these are the kernels that the library launches
- `ladder`: a rung by name, along any dimension and with its backward pass
- `python -m softmax_tutorial`: the ladder on this computer's GPU; `ladder_table` prints it
- `packed_rows_simple`: several rows in one program, in some twenty lines
- `split_rows_simple`: one row on several programs, in some forty lines
- `flash_attention`: the online recurrence with an output beside it
- `attention`: the same on vectors, in rungs of its own
- `matrices`: what launchers check and allocate
"""
