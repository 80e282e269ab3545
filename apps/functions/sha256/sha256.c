#include "../common/opencl_c.h"
#define sha256 sha256_item
#include "sha256.cl"
#undef sha256

int32_t sha256(const baltra_argument *arguments, uint32_t count, char *error, uint64_t error_bytes) {
  EXPECT(4)
  ulong messages = NUMBER(ulong, 3);
  RUN(messages, sha256_item(ARRAY(uchar, 0), ARRAY(uchar, 1), NUMBER(ulong, 2), messages));
  return 0;
}
