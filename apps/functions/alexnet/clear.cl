
/* Feature maps with a border begin as zeros. */
kernel void clear(global float *maps) { maps[get_global_id(0)] = 0.0f; }
