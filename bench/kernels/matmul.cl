/* c = a b for square matrices whose side is a multiple of 128. A group of 4 x 64 work-items
 * computes a tile of 128 x 128; each work-item two rows of 32 columns, which are whole lines. */
#define SIDE 128
#define DEPTH 32
#define ROWS 2

kernel __attribute__((reqd_work_group_size(4, 64, 1)))
void matmul(global const float4 *restrict a, global const float4 *restrict b,
            global float16 *restrict c, int n) {
  local float tile_a[SIDE][DEPTH];
  local float16 tile_b[DEPTH][SIDE / 16];
  local float4 *to_a = (local float4 *)tile_a, *to_b = (local float4 *)tile_b;
  int x = get_local_id(0), y = get_local_id(1), item = 4 * y + x;
  int row = get_group_id(1) * SIDE, column = get_group_id(0) * SIDE;
  float16 left[ROWS], right[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; r++) left[r] = right[r] = 0.0f;
  for (int first = 0; first < n; first += DEPTH) {
#pragma unroll
    for (int i = 0; i < SIDE * DEPTH / 1024; i++) {
      int at = 256 * i + item;
      to_a[at] = a[((row + at / (DEPTH / 4)) * n + first) / 4 + at % (DEPTH / 4)];
      to_b[at] = b[((first + at / (SIDE / 4)) * n + column) / 4 + at % (SIDE / 4)];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < DEPTH; k++) {
      float16 values = tile_b[k][2 * x], more = tile_b[k][2 * x + 1];
#pragma unroll
      for (int r = 0; r < ROWS; r++) {
        left[r] += tile_a[ROWS * y + r][k] * values;
        right[r] += tile_a[ROWS * y + r][k] * more;
      }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
  }
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    int at = ((row + ROWS * y + r) * n + column) / 16 + 2 * x;
    c[at] = left[r];
    c[at + 1] = right[r];
  }
}
