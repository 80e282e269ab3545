// Kernels that exchange packets of pipes.

typedef struct {
    char tag;
    long sum;
    short pair[5];
} item;

typedef struct {
    uchar bytes[300];
} block;

// Work-items that do not wait: those that find the pipe full count.
kernel void produce(global const int *in, write_only pipe int p, global int *refused)
{
    int v = in[get_global_id(0)];
    if (write_pipe(p, &v) != 0) refused[0] += 1;
}
kernel void consume(read_only pipe int p, global int *out)
{
    int v;
    out[get_global_id(0)] = read_pipe(p, &v) == 0 ? v : -1;
}

// A work-item that waits for the other side.
kernel void send(global const int *in, write_only pipe int p, int n)
{
    for (int i = 0; i < n; i++) {
        int v = in[i];
        while (write_pipe(p, &v) != 0) {
        }
    }
}
kernel void receive(read_only pipe int p, global int *out, int n)
{
    for (int i = 0; i < n; i++) {
        int v;
        while (read_pipe(p, &v) < 0) {
        }
        out[i] = v;
    }
}

kernel void ask(write_only pipe uchar questions, read_only pipe item answers, global long *out,
                int n)
{
    uchar x = 1;
    for (int i = 0; i < n; i++) {
        item a;
        while (write_pipe(questions, &x) != 0) {
        }
        while (read_pipe(answers, &a) != 0) {
        }
        out[i] = a.sum + a.pair[4] + a.tag;
        x = a.sum;
    }
}
kernel void answer(read_only pipe uchar questions, write_only pipe item answers, int n)
{
    for (int i = 0; i < n; i++) {
        uchar x;
        item a;
        while (read_pipe(questions, &x) != 0) {
        }
        a.tag = -3;
        a.sum = 3 * (long)x + 1;
        for (int k = 0; k < 5; k++) a.pair[k] = k * i;
        while (write_pipe(answers, &a) != 0) {
        }
    }
}

kernel void send_blocks(global const uchar *in, write_only pipe block p)
{
    block b;
    for (int i = 0; i < 300; i++) b.bytes[i] = in[300 * get_global_id(0) + i];
    write_pipe(p, &b);
}
kernel void receive_blocks(read_only pipe block p, global uchar *out)
{
    block b;
    if (read_pipe(p, &b) != 0) return;
    for (int i = 0; i < 300; i++) out[300 * get_global_id(0) + i] = b.bytes[i];
}

kernel void reserve(write_only pipe int p, global int *out)
{
    int a[5] = {10, 11, 12, 13, 14};
    reserve_id_t first = reserve_write_pipe(p, 3);
    reserve_id_t second = reserve_write_pipe(p, 2);
    reserve_id_t third = reserve_write_pipe(p, 4);  // the pipe has 8
    out[0] = is_valid_reserve_id(first) + 2 * is_valid_reserve_id(second);
    out[0] += 4 * is_valid_reserve_id(third);
    out[1] = (write_pipe(p, first, 5, &a[0]) < 0) + (write_pipe(p, third, 0, &a[0]) < 0);
    out[2] = is_valid_reserve_id(reserve_write_pipe(p, 9));
    out[2] += is_valid_reserve_id(reserve_write_pipe(p, 0));
    write_pipe(p, second, 1, &a[4]);
    write_pipe(p, second, 0, &a[3]);
    commit_write_pipe(p, second);
    out[3] = get_pipe_num_packets(p);  // the first reservation is open
    for (int i = 2; i >= 0; i--) write_pipe(p, first, i, &a[i]);
    commit_write_pipe(p, first);
    out[4] = get_pipe_num_packets(p);
    out[5] = get_pipe_max_packets(p);
}
kernel void take(read_only pipe int p, global int *out)
{
    int v = 0;
    out[0] = get_pipe_num_packets(p);
    reserve_id_t none = reserve_read_pipe(p, 6), two = reserve_read_pipe(p, 2);
    out[1] = is_valid_reserve_id(none) + 2 * is_valid_reserve_id(two);
    read_pipe(p, &v);
    out[2] = v;
    read_pipe(p, two, 1, &v);
    out[3] = v;
    read_pipe(p, two, 0, &v);
    out[4] = v;
    out[5] = read_pipe(p, two, 3, &v) < 0;
    commit_read_pipe(p, two);
    out[6] = get_pipe_num_packets(p);
    out[7] = get_pipe_max_packets(p);
}

kernel void send_groups(global const int *in, write_only pipe int p)
{
    reserve_id_t id = work_group_reserve_write_pipe(p, get_local_size(0));
    if (is_valid_reserve_id(id)) {
        write_pipe(p, id, get_local_size(0) - 1 - get_local_id(0), &in[get_global_id(0)]);
        work_group_commit_write_pipe(p, id);
    }
}
kernel void receive_groups(read_only pipe int p, global int *out)
{
    reserve_id_t id = work_group_reserve_read_pipe(p, get_local_size(0));
    if (is_valid_reserve_id(id)) {
        read_pipe(p, id, get_local_id(0), &out[get_global_id(0)]);
        work_group_commit_read_pipe(p, id);
    } else
        out[get_global_id(0)] = -1;
}
