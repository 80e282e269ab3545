#include "net.h"

#include <stddef.h>
#include <string.h>

#define C(out, size, step, pad, groups) {CONV, out, size, step, pad, groups}
#define N {LRN, 0, 0, 0, 0, 0}
#define P(size) {POOL, 0, size, 2, 0, 0}
#define F(out) {FULL, out, 0, 0, 0, 0}
#define S {SOFTMAX, 0, 0, 0, 0, 0}

static const struct net nets[] = {
    {"alexnet", 227,
     {C(96, 11, 4, 0, 1), N, P(3), C(256, 5, 1, 2, 2), N, P(3), C(384, 3, 1, 1, 1), C(384, 3, 1, 1, 2), C(256, 3, 1, 1, 2), P(3),
      F(4096), F(4096), F(CLASSES), S},
     14},
    {"vgg16", 224,
     {C(64, 3, 1, 1, 1), C(64, 3, 1, 1, 1), P(2), C(128, 3, 1, 1, 1), C(128, 3, 1, 1, 1), P(2), C(256, 3, 1, 1, 1),
      C(256, 3, 1, 1, 1), C(256, 3, 1, 1, 1), P(2), C(512, 3, 1, 1, 1), C(512, 3, 1, 1, 1), C(512, 3, 1, 1, 1), P(2),
      C(512, 3, 1, 1, 1), C(512, 3, 1, 1, 1), C(512, 3, 1, 1, 1), P(2), F(4096), F(4096), F(CLASSES), S},
     22},
};

const struct net *net_by_name(const char *name) {
  for (size_t i = 0; i < sizeof nets / sizeof *nets; i++)
    if (!strcmp(nets[i].name, name)) return &nets[i];
  return NULL;
}
