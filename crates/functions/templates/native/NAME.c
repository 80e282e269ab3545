#include <stdio.h>

#include "baltra_function.h"

int32_t NAME_WORD(const baltra_argument *arguments, uint32_t count, char *error, uint64_t error_bytes) {
  if (count != 2) {
    snprintf(error, error_bytes, "%u arguments instead of 2", count);
    return 1;
  }
  const double *numbers = arguments[0].data;
  double *sum = arguments[1].data;
  for (uint64_t i = 0; i < arguments[0].bytes / sizeof *numbers; i++) *sum += numbers[i];
  return 0;
}
