/* The normal distribution's integral: half the complementary error function. */
static float normal(float x) { return 0.5f * erfc(-x * 0.70710678f); }

/* One option per work-item. */
kernel void blackscholes(global const float *restrict spot, global const float *restrict strike, global const float *restrict years,
                         global float *restrict call, global float *restrict put, float rate, float volatility, uint count) {
  uint i = get_global_id(0);
  if (i >= count) return;
  float deviation = volatility * sqrt(years[i]);
  float d1 = (log(spot[i] / strike[i]) + (rate + 0.5f * volatility * volatility) * years[i]) / deviation;
  float d2 = d1 - deviation;
  float discounted = strike[i] * exp(-rate * years[i]);
  call[i] = spot[i] * normal(d1) - discounted * normal(d2);
  put[i] = discounted * normal(-d2) - spot[i] * normal(-d1);
}
