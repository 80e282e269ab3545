/* The same networks on the host in plain loops, as the reference for the device's scores. */
#ifndef REFERENCE_H
#define REFERENCE_H

#include <stdint.h>

#include "net.h"

/* weights[i], bias[i] belong to layer i (NULL if it has none), in the layout of the kernels.
 * rgb is net->side squared pixels; scores has space for CLASSES. */
void reference(const struct net *net, float *const *weights, float *const *bias, const uint8_t *rgb, float *scores);

#endif
