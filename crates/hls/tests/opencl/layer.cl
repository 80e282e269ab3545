// A convolution as four kernels that channels connect: vectors of an image and of weights, products
// of several output channels at a time, maxima of neighbors, and a store.
#pragma OPENCL EXTENSION cl_intel_channels : enable

#define VECTOR 4
#define LANES 4
#define WINDOW 3
#define PARTIAL_SUMS 4

typedef struct { char at[VECTOR]; } vector;
typedef struct { vector lane[LANES]; } vectors;
typedef struct { char lane[LANES]; } lanes;

channel vector pixels __attribute__((depth(8)));
channel vectors weights __attribute__((depth(8)));
channel lanes biases __attribute__((depth(2)));
channel lanes sums __attribute__((depth(8)));
channel lanes maxima __attribute__((depth(8)));

/* image: [y][x][vector], weight: [group of lanes][y][x][vector][lane] */
kernel void load_windows(global const vector *restrict image,
                         global const vectors *restrict weight, global const lanes *restrict bias,
                         int width, int height, int vectors_count, int groups)
{
    int taps = WINDOW * WINDOW * vectors_count;
    int all = groups * width * height * taps;
    int v = 0, dx = 0, dy = 0, x = 0, y = 0, group = 0, tap = 0;
    for (int n = 0; n < all; n++) {
        int column = x + dx - 1, row = y + dy - 1;
        vector pixel;
        if (column >= 0 && column < width && row >= 0 && row < height) {
            pixel = image[(row * width + column) * vectors_count + v];
        } else {
            #pragma unroll
            for (int k = 0; k < VECTOR; k++) pixel.at[k] = 0;
        }
        if (tap == 0) write_channel_intel(biases, bias[group]);
        write_channel_intel(pixels, pixel);
        write_channel_intel(weights, weight[group * taps + tap]);
        tap++;
        v++;
        if (v == vectors_count) {
            v = 0;
            dx++;
            if (dx == WINDOW) {
                dx = 0;
                dy++;
                if (dy == WINDOW) {
                    dy = 0;
                    tap = 0;
                    x++;
                    if (x == width) {
                        x = 0;
                        y++;
                        if (y == height) {
                            y = 0;
                            group++;
                        }
                    }
                }
            }
        }
    }
}

kernel void multiply(int outputs, int taps)
{
    for (int n = 0; n < outputs; n++) {
        int partial[LANES][PARTIAL_SUMS];
        lanes bias = read_channel_intel(biases);
        #pragma unroll
        for (int l = 0; l < LANES; l++) {
            #pragma unroll
            for (int p = 0; p < PARTIAL_SUMS; p++) partial[l][p] = 0;
        }
        for (int tap = 0; tap < taps; tap++) {
            vector pixel = read_channel_intel(pixels);
            vectors weight = read_channel_intel(weights);
            #pragma unroll
            for (int l = 0; l < LANES; l++) {
                int sum = partial[l][PARTIAL_SUMS - 1];
                #pragma unroll
                for (int k = 0; k < VECTOR; k++) sum += pixel.at[k] * weight.lane[l].at[k];
                #pragma unroll
                for (int p = PARTIAL_SUMS - 1; p > 0; p--) partial[l][p] = partial[l][p - 1];
                partial[l][0] = sum;
            }
        }
        lanes out;
        #pragma unroll
        for (int l = 0; l < LANES; l++) {
            int sum = bias.lane[l];
            #pragma unroll
            for (int p = 0; p < PARTIAL_SUMS; p++) sum += partial[l][p];
            sum >>= 4;
            out.lane[l] = sum < 0 ? 0 : sum > 127 ? 127 : sum;
        }
        write_channel_intel(sums, out);
    }
}

/* Maxima of `count` neighbors in a row. */
kernel void reduce(int outputs, int count)
{
    lanes most;
    int own = 0;
    for (int n = 0; n < outputs; n++) {
        lanes next = read_channel_intel(sums);
        #pragma unroll
        for (int l = 0; l < LANES; l++)
            most.lane[l] = own == 0 || next.lane[l] > most.lane[l] ? next.lane[l] : most.lane[l];
        own++;
        if (own == count) {
            own = 0;
            write_channel_intel(maxima, most);
        }
    }
}

/* out: [group of lanes][pixel][lane] */
kernel void store_lanes(global lanes *restrict out, int outputs)
{
    for (int n = 0; n < outputs; n++) out[n] = read_channel_intel(maxima);
}
