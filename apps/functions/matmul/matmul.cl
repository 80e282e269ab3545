/* c = a b for row-major matrices of rows x inner and inner x columns. A work-group of TILE x TILE
 * items computes one tile of c, iterating over a row of tiles of a and a column of tiles of b;
 * outside of the matrices the tiles hold zeros. */
kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void matmul(global const float *restrict a, global const float *restrict b, global float *restrict c, int rows, int inner,
            int columns) {
  local float tile_a[TILE][TILE];
  local float tile_b[TILE][TILE];
  int x = get_local_id(0), y = get_local_id(1);
  int column = get_global_id(0), row = get_global_id(1);
  float sum = 0.0f;
  for (int first = 0; first < inner; first += TILE) {
    tile_a[y][x] = row < rows && first + x < inner ? a[(size_t)row * inner + first + x] : 0.0f;
    tile_b[y][x] = column < columns && first + y < inner ? b[(size_t)(first + y) * columns + column] : 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < TILE; k++) sum += tile_a[y][k] * tile_b[k][x];
    barrier(CLK_LOCAL_MEM_FENCE);
  }
  if (row < rows && column < columns) c[(size_t)row * columns + column] = sum;
}
