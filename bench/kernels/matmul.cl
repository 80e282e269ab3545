/* c = a b for square matrices whose side is a multiple of 128. A group of 8 x 128 work-items
 * computes a tile of 128 x 128; each work-item 16 columns of a row. A row of the tile of a is one
 * line of memory: a work-item reads from four of them, so that they are fetched together. */
#define SIDE 128
#define DEPTH 32

kernel __attribute__((reqd_work_group_size(SIDE / 16, SIDE, 1)))
void matmul(global const float *restrict a, global const float4 *restrict b,
            global float16 *restrict c, int n) {
  local float tile_a[DEPTH][SIDE]; /* transposed */
  local float16 tile_b[DEPTH][SIDE / 16];
  uint x = get_local_id(0), y = get_local_id(1), item = SIDE / 16 * y + x;
  int row = get_group_id(1) * SIDE, column = get_group_id(0) * SIDE;
  local float4 *to_a = (local float4 *)tile_a[item % DEPTH] + item / DEPTH;
  local float4 *to_b = (local float4 *)tile_b + item;
  int from_a = (row + item / DEPTH * 4) * n + item % DEPTH;
  int from_b = (item / (SIDE / 4) * n + column) / 4 + item % (SIDE / 4);
  float16 sum = 0.0f;
  for (int first = 0, first_b = 0; first < n; first += DEPTH, first_b += DEPTH / 4 * n) {
    barrier(CLK_LOCAL_MEM_FENCE);
    int at = from_a + first;
    *to_a = (float4)(a[at], a[at + n], a[at + 2 * n], a[at + 3 * n]);
    *to_b = b[from_b + first_b];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int k = 0; k < DEPTH; k++) sum += tile_a[k][y] * tile_b[k][x];
  }
  c[((row + y) * n + column) / 16 + x] = sum;
}
