#include "../common/opencl_c.h"
#include "compress.cl"

#include <stdlib.h>

int32_t compress(const baltra_argument *arguments, uint32_t count, char *error, uint64_t error_bytes) {
  EXPECT(4)
  ulong length = NUMBER(ulong, 3), blocks = (length + BLOCK - 1) / BLOCK;
  ushort *tables = calloc(blocks + 1, sizeof *tables << TABLE_BITS);
  uchar *slots = malloc((blocks + 1) * SLOT);
  uint *sizes = malloc((blocks + 1) * sizeof *sizes), *checks = malloc((blocks + 1) * sizeof *checks);
  ulong *offsets = malloc((blocks + 1) * sizeof *offsets);
  int32_t failed = !tables || !slots || !sizes || !checks || !offsets;
  if (failed) {
    snprintf(error, error_bytes, "out of memory for %lu blocks", blocks);
  } else {
    RUN(blocks, deflate(ARRAY(uchar, 0), tables, slots, sizes, checks, length));
    assemble(sizes, checks, offsets, ARRAY(uchar, 1), ARRAY(ulong, 2), length);
    RUN(blocks, gather(slots, sizes, offsets, ARRAY(uchar, 1)));
  }
  free(tables);
  free(slots);
  free(sizes);
  free(checks);
  free(offsets);
  return failed;
}
