/* The functions of the HTTP door's tests. */
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include "baltra_function.h"

int32_t empty(const baltra_argument *a, uint32_t n, char *error, uint64_t room) {
  (void)a; (void)n; (void)error; (void)room;
  return 0;
}

int32_t uppercase(const baltra_argument *a, uint32_t n, char *error, uint64_t room) {
  (void)n; (void)error; (void)room;
  const uint8_t *in = a[0].data;
  uint8_t *out = a[1].data;
  uint64_t length = *(const uint64_t *)a[2].data;
  for (uint64_t i = 0; i < length; i++)
    out[i] = in[i] >= 'a' && in[i] <= 'z' ? in[i] - 32 : in[i];
  return 0;
}

int32_t scale(const baltra_argument *a, uint32_t n, char *error, uint64_t room) {
  (void)n; (void)error; (void)room;
  const float *in = a[0].data;
  float *out = a[1].data, factor = *(const float *)a[2].data;
  uint64_t length = *(const uint64_t *)a[3].data;
  for (uint64_t i = 0; i < length; i++) out[i] = in[i] * factor;
  return 0;
}

int32_t nap(const baltra_argument *a, uint32_t n, char *error, uint64_t room) {
  (void)n;
  uint32_t ms = *(const uint32_t *)a[0].data;
  if (ms == 0) {
    snprintf(error, room, "too short a nap");
    return 1;
  }
  struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
  nanosleep(&t, 0);
  *(uint32_t *)a[1].data = ms;
  return 0;
}
