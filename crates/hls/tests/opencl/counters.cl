// A matrix product as three kernels of one work-item, in the form in which programs for FPGAs are
// written: one loop each, whose counters stand for several loops, and everything else depends on
// them. `feed` reads a tile of rows into one half of a buffer while it sends the other side, and the
// weights once for each group of columns.
#pragma OPENCL EXTENSION cl_intel_channels : enable

#ifndef LANES
#define VECTOR 4
#define LANES 4
#endif
#define TILE 6
#define DEPTH_MAX 32
#define PARTIAL_SUMS 3

typedef struct { char at[VECTOR]; } vector;
typedef struct { vector lane[LANES]; } vectors;
typedef struct { char lane[LANES]; } lanes;

channel vector rows_ch __attribute__((depth(0)));
channel vectors weights_ch __attribute__((depth(0)));
channel lanes biases_ch __attribute__((depth(2)));
channel lanes sums_ch __attribute__((depth(0)));
channel bool row_ch __attribute__((depth(4)));

/* image: [row][depth][vector], weight: [group][depth][lane][vector]; `rows` and `depth` have 8 and 16
 * bits, so that counters are extended. */
kernel void feed(uchar rows, ushort depth, ushort groups,
                 global vector *restrict image, global vectors *restrict weight,
                 global volatile lanes *restrict bias)
{
    local vector tiles[2][TILE * DEPTH_MAX];
    local vectors weights[DEPTH_MAX];
    uchar row = 0, tile = 0, next_tile = 0, side = 0, load_weight = 1, load_tile = 1;
    uchar load_row = 0;
    ushort at = 0, load_at = 0, group = 0;
    uint item = 0, bound = 0;
    lanes start;
    uchar tiles_count = (rows + TILE - 1) / TILE;
    for (uint k = 0; k < TILE * (uint)depth; k++) {
        if (k < rows * (uint)depth) tiles[0][k] = image[k];
    }
    next_tile = tiles_count == 1 ? 0 : 1;
    for (uint k = 0; k < (uint)tiles_count * groups * TILE * depth; k++) {
        if (item == 0) {
            load_tile = 1;
            bound = TILE * depth;
        }
        if (load_tile == 1) {
            vector next;
            uint from = next_tile * TILE + load_row;
            if (from < rows) {
                next = image[from * depth + load_at];
            } else {
                #pragma unroll
                for (int v = 0; v < VECTOR; v++) next.at[v] = 0;
            }
            tiles[(~side) & 1][load_row * depth + load_at] = next;
            if (load_row == TILE - 1 && load_at == depth - 1) load_tile = 0;
            if (load_at == depth - 1 && load_row == TILE - 1)
                load_row = 0;
            else if (load_at == depth - 1)
                load_row++;
            if (load_at == depth - 1)
                load_at = 0;
            else
                load_at++;
        }
        if (load_weight == 1) weights[at] = weight[group * depth + at];
        if (tile * TILE + row < rows) {
            if (at == 0) {
                if (load_weight == 1) start = bias[group];
                write_channel_intel(biases_ch, start);
            }
            write_channel_intel(rows_ch, tiles[side][row * depth + at]);
            write_channel_intel(weights_ch, weights[at]);
            if (row == TILE - 1 && at == depth - 1)
                row = 0;
            else if (at == depth - 1)
                row++;
            if (at == depth - 1) {
                at = 0;
                load_weight = 0;
            } else {
                at++;
            }
        }
        if (item == bound - 1) {
            item = 0;
            row = 0;
            side = !side;
            if (tile == tiles_count - 1) {
                group++;
                load_weight = 1;
            }
            tile = tile == tiles_count - 1 ? 0 : tile + 1;
            next_tile = next_tile == tiles_count - 1 ? 0 : next_tile + 1;
        } else {
            item++;
        }
    }
}

kernel void multiply(uint all, uint depth)
{
    int partial[LANES][PARTIAL_SUMS];
    char start[LANES];
    uint at = 0;
    for (uint k = 0; k < all; k++) {
        if (at == 0) {
            lanes bias = read_channel_intel(biases_ch);
            #pragma unroll
            for (int l = 0; l < LANES; l++) {
                start[l] = bias.lane[l];
                #pragma unroll
                for (int p = 0; p < PARTIAL_SUMS; p++) partial[l][p] = 0;
            }
        }
        vector row = read_channel_intel(rows_ch);
        vectors weight = read_channel_intel(weights_ch);
        #pragma unroll
        for (int l = 0; l < LANES; l++) {
            int sum = partial[l][PARTIAL_SUMS - 1];
            #pragma unroll
            for (int v = 0; v < VECTOR; v++) sum += row.at[v] * weight.lane[l].at[v];
            #pragma unroll
            for (int p = PARTIAL_SUMS - 1; p > 0; p--) partial[l][p] = partial[l][p - 1];
            partial[l][0] = sum;
        }
        if (at == depth - 1) {
            lanes out;
            #pragma unroll
            for (int l = 0; l < LANES; l++) {
                int sum = start[l];
                #pragma unroll
                for (int p = 0; p < PARTIAL_SUMS; p++) sum += partial[l][p];
                out.lane[l] = sum >= 127 << 6 ? 127 : sum < -(128 << 6) ? -128 : sum >> 6;
            }
            write_channel_intel(sums_ch, out);
            at = 0;
        } else {
            at++;
        }
    }
}

/* out: [group][row][lane]; `check` receives an element for every eighth row of a group. */
kernel void collect(uchar rows, ushort groups, global char *restrict out)
{
    local char buffer[LANES];
    uchar lane = 0, row = 0;
    ushort group = 0;
    for (uint k = 0; k < rows * (uint)groups * LANES; k++) {
        if (lane == 0) {
            lanes sums = read_channel_intel(sums_ch);
            #pragma unroll
            for (int l = 0; l < LANES; l++) buffer[l] = sums.lane[l];
        }
        out[(group * rows + row) * LANES + lane] = buffer[lane];
        if (lane == LANES - 1 && row % 8 == 7) write_channel_intel(row_ch, 1);
        if (lane == LANES - 1 && row == rows - 1)
            group++;
        if (lane == LANES - 1 && row == rows - 1)
            row = 0;
        else if (lane == LANES - 1)
            row++;
        lane = lane == LANES - 1 ? 0 : lane + 1;
    }
}

/* Counts elements, and reads memory after a fence, so that `collect` has one before each element. */
kernel void check(ushort count, global volatile char *restrict out, global int *restrict total)
{
    for (ushort n = 0; n < count; n++) {
        bool there = read_channel_intel(row_ch);
        mem_fence(CLK_GLOBAL_MEM_FENCE | CLK_CHANNEL_MEM_FENCE);
        int sum = there ? n : 1000;
        total[n] = sum + out[n];
    }
}
