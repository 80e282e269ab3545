# The board's source files in the order of their use.
common/rtl/fifo.sv
