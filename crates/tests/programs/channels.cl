// Three kernels in a row, connected by channels.
#pragma OPENCL EXTENSION cl_intel_channels : enable

channel int numbers __attribute__((depth(16)));
channel long products __attribute__((depth(4)));

kernel void produce(global const int *in, int n)
{
    for (int i = 0; i < n; i++) write_channel_intel(numbers, in[i]);
}

kernel void multiply(int by, int n)
{
    for (int i = 0; i < n; i++) write_channel_intel(products, (long)read_channel_intel(numbers) * by);
}

kernel void consume(global long *out, int n)
{
    for (int i = 0; i < n; i++) out[i] = read_channel_intel(products);
    if (n < 10) printf("consumed %d\n", n);
}
