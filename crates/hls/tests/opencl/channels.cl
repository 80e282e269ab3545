// Kernels that exchange elements of channels.
#pragma OPENCL EXTENSION cl_intel_channels : enable

#define DEPTH 4

typedef struct {
    char lane[3];
    int sum;
    short pair[5];
} packet;

channel int numbers;
channel packet packets __attribute__((depth(DEPTH)));
channel float4 vectors[2] __attribute__((depth(0)));
channel uchar bytes __attribute__((depth(8)));
channel long answers __attribute__((depth(2)));
channel short offers __attribute__((depth(8)));
channel int parts;
channel int raw __attribute__((depth(4)));
channel int odd_squares __attribute__((depth(4)));
channel int halves __attribute__((depth(4)));
channel int sums __attribute__((depth(4)));
channel int both_ways __attribute__((depth(4)));
channel int products __attribute__((depth(4)));

kernel void produce(global const int *in, int n)
{
    for (int i = 0; i < n; i++) write_channel_intel(numbers, in[i]);
}

kernel void transform(int n)
{
    int sum = 0;
    for (int i = 0; i < n; i++) {
        int x = read_channel_intel(numbers);
        sum += x;
        packet p;
        for (int k = 0; k < 3; k++) p.lane[k] = x >> 8 * k;
        p.sum = sum;
        for (int k = 0; k < 5; k++) p.pair[k] = x * k;
        write_channel_intel(packets, p);
        if (x & 1) write_channel_intel(vectors[1], (float4)(x, sum, i, -1));
    }
    float4 last = 0;
    write_channel_intel(vectors[1], last);
}

kernel void consume(global int *out, global float4 *odd, int n)
{
    for (int i = 0; i < n; i++) {
        packet p = read_channel_intel(packets);
        out[4 * i] = (uchar)p.lane[0] + ((uchar)p.lane[1] << 8) + ((uchar)p.lane[2] << 16);
        out[4 * i + 1] = p.sum;
        out[4 * i + 2] = p.pair[1] + p.pair[4];
        float4 v = 0;
        if ((p.lane[0] & 1) || i == n - 1) v = read_channel_intel(vectors[1]);
        odd[i] = v;
    }
}

/* Waits for an answer to each element, on which the next one depends. */
kernel void ask(global int *out, int n)
{
    uchar x = 1;
    for (int i = 0; i < n; i++) {
        write_channel_intel(bytes, x);
        long answer = read_channel_intel(answers);
        out[i] = (int)answer;
        x = answer;
    }
}

kernel void answer(int n)
{
    for (int i = 0; i < n; i++) {
        uchar x = read_channel_intel(bytes);
        write_channel_intel(answers, ((long)x * 3 + 1) | (1L << 40));
    }
}

/* Writes what fits, without waiting. */
kernel void offer(global int *out, int n)
{
    int accepted = 0;
    for (int i = 0; i < n; i++)
        if (write_channel_nb_altera(offers, i + 100)) accepted++;
    out[0] = accepted;
}

/* Reads n elements without waiting, and counts the attempts that find none. */
kernel void poll(global int *out, int n)
{
    int misses = 0, got = 0;
    while (got < n) {
        bool there;
        short x = read_channel_nb_altera(offers, &there);
        if (there)
            out[got++] = x;
        else
            misses++;
    }
    out[n] = misses;
}

/* Fills a buffer, a part of a line at a time, and the other reads each part when it is complete. */
kernel void fill(global int *data, int n)
{
    for (int i = 0; i < n; i++) {
        data[i] = 3 * i + 1;
        if (i % 10 == 9) write_channel_intel(parts, i);
    }
}

kernel void sum(global int *data, global int *out, int n)
{
    int total = 0;
    for (int i = 0; i < n; i += 10) {
        int last = read_channel_intel(parts);
        mem_fence(CLK_CHANNEL_MEM_FENCE);
        for (int k = 0; k < 10; k++) total += data[last - k];
        out[i / 10] = total;
    }
}

/* A source, a filter and a sum, whose elements only the filter counts. */
kernel void source(int n)
{
    for (int i = 0; i < n; i++) write_channel_intel(raw, i * 11 + 4);
}

kernel void filter(int n)
{
    for (int i = 0; i < n; i++) {
        int x = read_channel_intel(raw);
        if (x % 4 == 1 || x % 4 == 3) write_channel_intel(odd_squares, x * x);
    }
}

kernel void add_up(global int *out, int n)
{
    int total = 0;
    for (int i = 0; i < n; i++) total += read_channel_intel(odd_squares);
    out[0] = total;
}

/* The same with an element for each work-item, and a condition. */
kernel void send(global const int *in)
{
    int i = get_global_id(0);
    if (i & 1) write_channel_intel(halves, in[i]);
}

kernel void combine(int n)
{
    int i = get_global_id(0);
    int x = i * 5;
    if (i & 1) x += read_channel_intel(halves);
    write_channel_intel(sums, x);
}

kernel void receive(global int *out)
{
    out[get_global_id(0)] = read_channel_intel(sums);
}

/* Two elements of a channel in each iteration. */
kernel void pair_up(int n)
{
    for (int i = 0; i < n; i++) {
        write_channel_intel(both_ways, i + 2);
        write_channel_intel(both_ways, i ^ 3);
    }
}

kernel void product(int n)
{
    for (int i = 0; i < n; i++) {
        int a = read_channel_intel(both_ways), b = read_channel_intel(both_ways);
        write_channel_intel(products, i & 1 ? a * b : a - b);
    }
}

kernel void store_products(global int *out, int n)
{
    for (int i = 0; i < n; i++) out[i] = read_channel_intel(products);
}
