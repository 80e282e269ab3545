#include "reference.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../common/clu.h"

struct maps {
  int channels, width, height;
  float *at;
};

static struct maps make(int channels, int width, int height) {
  return (struct maps){channels, width, height, clu_alloc((size_t)channels * (size_t)width * (size_t)height * sizeof(float))};
}

static float get(const struct maps *m, int c, int y, int x) {
  if (x < 0 || y < 0 || x >= m->width || y >= m->height) return 0;
  return m->at[((size_t)c * (size_t)m->height + (size_t)y) * (size_t)m->width + (size_t)x];
}

static struct maps conv(const struct layer *l, const struct maps *in, const float *weights, const float *bias) {
  int channels_in = in->channels / l->groups;
  struct maps out = make(l->out, (in->width + 2 * l->pad - l->size) / l->step + 1, (in->height + 2 * l->pad - l->size) / l->step + 1);
  float *to = out.at;
  for (int o = 0; o < l->out; o++) {
    int first = o / (l->out / l->groups) * channels_in;
    const float *block = weights + (size_t)(o / 8) * (size_t)(channels_in * l->size * l->size) * 8 + o % 8;
    for (int y = 0; y < out.height; y++)
      for (int x = 0; x < out.width; x++) {
        const float *w = block;
        double sum = (double)bias[o];
        for (int c = 0; c < channels_in; c++)
          for (int ky = 0; ky < l->size; ky++)
            for (int kx = 0; kx < l->size; kx++, w += 8)
              sum += (double)(get(in, first + c, y * l->step + ky - l->pad, x * l->step + kx - l->pad) * *w);
        *to++ = sum > 0 ? (float)sum : 0;
      }
  }
  return out;
}

static struct maps pool(const struct layer *l, const struct maps *in) {
  struct maps out = make(in->channels, (in->width - l->size) / l->step + 1, (in->height - l->size) / l->step + 1);
  float *to = out.at;
  for (int c = 0; c < out.channels; c++)
    for (int y = 0; y < out.height; y++)
      for (int x = 0; x < out.width; x++, to++) {
        *to = get(in, c, y * l->step, x * l->step);
        for (int k = 1; k < l->size * l->size; k++)
          *to = fmaxf(*to, get(in, c, y * l->step + k / l->size, x * l->step + k % l->size));
      }
  return out;
}

static struct maps lrn(const struct maps *in) {
  struct maps out = make(in->channels, in->width, in->height);
  float *to = out.at;
  for (int c = 0; c < out.channels; c++)
    for (int y = 0; y < out.height; y++)
      for (int x = 0; x < out.width; x++) {
        double sum = 0;
        for (int i = c < 2 ? 0 : c - 2; i <= c + 2 && i < in->channels; i++) sum += pow((double)get(in, i, y, x), 2);
        *to++ = (float)((double)get(in, c, y, x) / pow(2 + 1e-4 * sum, 0.75));
      }
  return out;
}

static struct maps full(const struct layer *l, const struct maps *in, const float *weights, const float *bias, bool relu) {
  size_t count = (size_t)in->channels * (size_t)in->width * (size_t)in->height;
  struct maps out = make(l->out, 1, 1);
  for (int o = 0; o < l->out; o++) {
    double sum = (double)bias[o];
    for (size_t i = 0; i < count; i++) sum += (double)(in->at[i] * *weights++);
    out.at[o] = relu && sum < 0 ? 0 : (float)sum;
  }
  return out;
}

static struct maps softmax(const struct maps *in) {
  struct maps out = make(in->channels, 1, 1);
  double most = (double)in->at[0], sum = 0;
  for (int i = 1; i < in->channels; i++) most = fmax(most, (double)in->at[i]);
  for (int i = 0; i < in->channels; i++) sum += exp((double)in->at[i] - most);
  for (int i = 0; i < in->channels; i++) out.at[i] = (float)(exp((double)in->at[i] - most) / sum);
  return out;
}

void reference(const struct net *net, float *const *weights, float *const *bias, const uint8_t *rgb, float *scores) {
  struct maps maps = make(3, net->side, net->side);
  size_t pixels = (size_t)net->side * (size_t)net->side;
  for (size_t i = 0; i < pixels; i++)
    for (size_t c = 0; c < 3; c++) maps.at[c * pixels + i] = ((float)rgb[3 * i + c] - 118) / 64;
  for (int i = 0; i < net->count; i++) {
    const struct layer *l = &net->layers[i];
    struct maps out;
    switch (l->kind) {
      case CONV: out = conv(l, &maps, weights[i], bias[i]); break;
      case POOL: out = pool(l, &maps); break;
      case LRN: out = lrn(&maps); break;
      case FULL: out = full(l, &maps, weights[i], bias[i], net->layers[i + 1].kind != SOFTMAX); break;
      default: out = softmax(&maps);
    }
    free(maps.at);
    maps = out;
  }
  memcpy(scores, maps.at, CLASSES * sizeof *scores);
  free(maps.at);
}
