/* y = A x for a sparse matrix in compressed rows: a row per work-item. */
kernel void spmv(global const int *restrict starts, global const int *restrict columns,
                 global const float *restrict values, global const float *restrict x,
                 global float *restrict y) {
  uint row = get_global_id(0);
  float sum = 0.0f;
  for (int i = starts[row]; i < starts[row + 1]; i++) sum += values[i] * x[columns[i]];
  y[row] = sum;
}
