/* The nearest of 16 centers for each point with four coordinates. */
kernel void kmeans(global const float4 *restrict points, global const float4 *restrict centers,
                   global int *restrict nearest) {
  uint i = get_global_id(0);
  float4 point = points[i];
  float least = INFINITY;
  int best = 0;
  for (int k = 0; k < 16; k++) {
    float4 d = point - centers[k];
    d *= d;
    float far = d.x + d.y + d.z + d.w;
    if (far < least) {
      least = far;
      best = k;
    }
  }
  nearest[i] = best;
}
