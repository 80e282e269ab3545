/* The same networks on the host, in the plainest loops: what the device's scores are checked against. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include <stdint.h>

#include "net.h"

/* weights[i], bias[i] belong to layer i (NULL where it has none), laid out as the kernels want them.
 * rgb is net->side squared pixels; scores has room for CLASSES. */
void reference(const struct net *net, float *const *weights, float *const *bias, const uint8_t *rgb, float *scores);

#endif
