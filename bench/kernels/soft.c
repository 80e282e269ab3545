/* Plain C of the kernels whose OpenCL C has barriers or vectors, for the soft core. */

static void histogram(const uchar *data, int *counts, uint bytes) {
  for (uint i = 0; i < bytes; i++) counts[data[i]]++;
}

static void prefix(const int *in, int *out, uint count) {
  int sum = 0;
  for (uint i = 0; i < count; i++) out[i] = sum += in[i];
}

static void kmeans(const float *points, const float *centers, int *nearest, uint count) {
  for (uint i = 0; i < count; i++) {
    float least = __builtin_inff();
    for (int k = 0; k < 16; k++) {
      float far = 0;
      for (int j = 0; j < 4; j++) {
        float d = points[4 * i + j] - centers[4 * k + j];
        d *= d;
        far = j ? far + d : d;
      }
      if (far < least) {
        least = far;
        nearest[i] = k;
      }
    }
  }
}

static void fft(const float *in, float *data, const float *roots) {
  for (uint i = 0; i < 2048; i++) data[i] = in[i];
  for (uint stage = 0; stage < 10; stage++)
    for (uint pair = 0; pair < 512; pair++) {
      uint half = 1 << stage, low = pair & (half - 1), at = ((pair >> stage) << (stage + 1)) + low;
      const float *w = roots + 2 * (low << (9 - stage));
      float *a = data + 2 * at, *b = a + 2 * half;
      float x = b[0] * w[0] - b[1] * w[1], y = b[0] * w[1] + b[1] * w[0];
      b[0] = a[0] - x, b[1] = a[1] - y;
      a[0] = a[0] + x, a[1] = a[1] + y;
    }
}

static void matmul(const float *a, const float *b, float *c, uint n) {
  for (uint i = 0; i < n; i++)
    for (uint j = 0; j < n; j++) {
      float sum = 0;
      for (uint k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
      c[i * n + j] = sum;
    }
}
