/* A generation of Conway's Game of Life on a torus; a cell is 1 or 0. */
kernel void life(global const uchar *cells, global uchar *next, int width, int height) {
  int x = get_global_id(0), y = get_global_id(1);
  int left = x ? x - 1 : width - 1, right = x + 1 < width ? x + 1 : 0;
  int above = (y ? y - 1 : height - 1) * width, below = (y + 1 < height ? y + 1 : 0) * width;
  int here = y * width;
  int neighbors = cells[above + left] + cells[above + x] + cells[above + right] +
                  cells[here + left] + cells[here + right] +
                  cells[below + left] + cells[below + x] + cells[below + right];
  next[here + x] = neighbors == 3 || (neighbors == 2 && cells[here + x]);
}
