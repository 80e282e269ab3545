/* The shapes of the two networks, layer by layer. */
#ifndef NET_H
#define NET_H

enum layer_kind { CONV, LRN, POOL, FULL, SOFTMAX };

struct layer {
  enum layer_kind kind;
  int out;    /* CONV, FULL: channels out; a multiple of 8 */
  int size;   /* CONV, POOL: side of the window */
  int step;   /* CONV, POOL: pixels between windows */
  int pad;    /* CONV: zeros around its input */
  int groups; /* CONV: groups of channels, each of which reads only its group of the input */
};

enum { LAYERS_MAX = 32, CLASSES = 1000 };

struct net {
  const char *name;
  int side; /* the input is side x side x 3 */
  struct layer layers[LAYERS_MAX];
  int count;
};

/* NULL if there is no network of this name. */
const struct net *net_by_name(const char *name);

#endif
