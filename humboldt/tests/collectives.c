/* Compares collectives with results that one rank can compute, for any number of ranks, with small
 * and large messages. */
#include "check.h"
#include <mpi.h>
#include <string.h>

static int rank, size;
static MPI_Comm comm;

/* The value of rank r at index i, small enough that sums are exact in every order. */
static double value(int r, int i) { return (r * 7 + i * 3) % 101 - 50; }

static void append(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    /* Composition of affine maps: associative, but not commutative. */
    double (*a)[2] = in, (*b)[2] = inout;
    for (int i = 0; i < *count / 2; i++) {
        double k = a[i][0] * b[i][0], d = a[i][0] * b[i][1] + a[i][1];
        b[i][0] = k;
        b[i][1] = d;
    }
}

static void all(int n)
{
    double *out = calloc((size_t)n * (size_t)size + 1, sizeof *out), *in = calloc((size_t)n * (size_t)size + 1, sizeof *in);
    for (int root = 0; root < size; root += size > 3 ? size / 2 : 1) {
        for (int i = 0; i < n; i++) in[i] = rank == root ? value(root, i) : -1;
        MPI_Bcast(in, n, MPI_DOUBLE, root, comm);
        for (int i = 0; i < n; i++) CHECK(in[i] == value(root, i));
        for (int i = 0; i < n; i++) out[i] = value(rank, i);
        memset(in, 0, (size_t)n * sizeof *in);
        MPI_Reduce(out, in, n, MPI_DOUBLE, MPI_SUM, root, comm);
        for (int i = 0; i < n && rank == root; i++) {
            double sum = 0;
            for (int r = 0; r < size; r++) sum += value(r, i);
            CHECK(in[i] == sum);
        }
        MPI_Gather(out, n, MPI_DOUBLE, in, n, MPI_DOUBLE, root, comm);
        for (int i = 0; i < n * size && rank == root; i++) CHECK(in[i] == value(i / n, i % n));
        if (rank == root)
            for (int i = 0; i < n * size; i++) out[i] = value(i / n, i % n) + 1;
        MPI_Scatter(out, n, MPI_DOUBLE, in, n, MPI_DOUBLE, root, comm);
        for (int i = 0; i < n; i++) CHECK(in[i] == value(rank, i) + 1);
    }
    for (int i = 0; i < n; i++) out[i] = value(rank, i);
    MPI_Allreduce(out, in, n, MPI_DOUBLE, MPI_MAX, comm);
    for (int i = 0; i < n; i++) {
        double most = value(0, i);
        for (int r = 1; r < size; r++) most = value(r, i) > most ? value(r, i) : most;
        CHECK(in[i] == most);
    }
    memcpy(in, out, (size_t)n * sizeof *in);
    MPI_Allreduce(MPI_IN_PLACE, in, n, MPI_DOUBLE, MPI_SUM, comm);
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int r = 0; r < size; r++) sum += value(r, i);
        CHECK(in[i] == sum);
    }
    MPI_Scan(out, in, n, MPI_DOUBLE, MPI_SUM, comm);
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int r = 0; r <= rank; r++) sum += value(r, i);
        CHECK(in[i] == sum);
    }
    MPI_Allgather(out, n, MPI_DOUBLE, in, n, MPI_DOUBLE, comm);
    for (int i = 0; i < n * size; i++) CHECK(in[i] == value(i / n, i % n));
    for (int i = 0; i < n * size; i++) out[i] = rank * 1000 + i;
    MPI_Alltoall(out, n, MPI_DOUBLE, in, n, MPI_DOUBLE, comm);
    for (int i = 0; i < n * size; i++) CHECK(in[i] == i / n * 1000 + rank * n + i % n);
    MPI_Alltoall(MPI_IN_PLACE, n, MPI_DOUBLE, out, n, MPI_DOUBLE, comm);
    CHECK(memcmp(in, out, (size_t)n * (size_t)size * sizeof *in) == 0);

    /* The v-forms: rank r has r + 1 of n elements. */
    int *counts = calloc((size_t)size, sizeof *counts), *places = calloc((size_t)size, sizeof *places);
    int total = 0;
    for (int r = 0; r < size; r++) {
        counts[r] = n * (r + 1) / size;
        places[r] = total;
        total += counts[r];
    }
    for (int i = 0; i < counts[rank]; i++) out[i] = value(rank, i);
    MPI_Gatherv(out, counts[rank], MPI_DOUBLE, in, counts, places, MPI_DOUBLE, size - 1, comm);
    for (int r = 0; r < size && rank == size - 1; r++)
        for (int i = 0; i < counts[r]; i++) CHECK(in[places[r] + i] == value(r, i));
    MPI_Allgatherv(out, counts[rank], MPI_DOUBLE, in, counts, places, MPI_DOUBLE, comm);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < counts[r]; i++) CHECK(in[places[r] + i] == value(r, i));
    memset(out, 0, (size_t)n * sizeof *out);
    MPI_Scatterv(in, counts, places, MPI_DOUBLE, out, counts[rank], MPI_DOUBLE, 0, comm);
    for (int i = 0; i < counts[rank]; i++) CHECK(out[i] == value(rank, i));
    for (int i = 0; i < total; i++) out[i] = value(rank, i);
    MPI_Reduce_scatter(out, in, counts, MPI_DOUBLE, MPI_SUM, comm);
    for (int i = 0; i < counts[rank]; i++) {
        double sum = 0;
        for (int r = 0; r < size; r++) sum += value(r, places[rank] + i);
        CHECK(in[i] == sum);
    }
    for (int i = 0; i < n * size; i++) out[i] = value(rank, i);
    MPI_Reduce_scatter_block(out, in, n, MPI_DOUBLE, MPI_SUM, comm);
    for (int i = 0; i < n; i++) {
        double sum = 0;
        for (int r = 0; r < size; r++) sum += value(r, rank * n + i);
        CHECK(in[i] == sum);
    }
    /* Alltoallv: the size from rank r to s depends on both numbers. */
    int *back = calloc((size_t)size, sizeof *back), *back_places = calloc((size_t)size, sizeof *back_places), in_total = 0;
    total = 0;
    for (int r = 0; r < size; r++) {
        counts[r] = (rank + r) % 3 * n / 3;
        back[r] = (r + rank) % 3 * n / 3;
        places[r] = total;
        back_places[r] = in_total;
        total += counts[r];
        in_total += back[r];
    }
    for (int r = 0; r < size; r++)
        for (int i = 0; i < counts[r]; i++) out[places[r] + i] = rank * 1e4 + r * 100 + i;
    MPI_Alltoallv(out, counts, places, MPI_DOUBLE, in, back, back_places, MPI_DOUBLE, comm);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < back[r]; i++) CHECK(in[back_places[r] + i] == r * 1e4 + rank * 100 + i);
    free(counts), free(places), free(back), free(back_places), free(out), free(in);
}

static void operations(void)
{
    int mine = rank + 1, got;
    MPI_Allreduce(&mine, &got, 1, MPI_INT, MPI_BXOR, comm);
    int wanted = 0;
    for (int r = 0; r < size; r++) wanted ^= r + 1;
    CHECK(got == wanted);
    MPI_Allreduce(&mine, &got, 1, MPI_INT, MPI_LAND, comm);
    CHECK(got == 1);
    struct {
        double value;
        int place;
    } pair = {value(rank, 5), rank}, best;
    MPI_Allreduce(&pair, &best, 1, MPI_DOUBLE_INT, MPI_MINLOC, comm);
    int least = 0;
    for (int r = 1; r < size; r++)
        if (value(r, 5) < value(least, 5)) least = r;
    CHECK(best.place == least && best.value == value(least, 5));
    /* Not commutative: the result is the composition in the order of ranks. */
    MPI_Op compose;
    MPI_Op_create(append, 0, &compose);
    double map[2] = {rank % 2 ? -1 : 2, rank}, made[2], k = 1, d = 0;
    for (int r = size - 1; r >= 0; r--) {
        double rk = r % 2 ? -1 : 2;
        d = rk * d + r;
        k = rk * k;
    }
    MPI_Allreduce(map, made, 2, MPI_DOUBLE, compose, comm);
    CHECK(made[0] == k && made[1] == d);
    MPI_Op_free(&compose);
}

static void communicators(void)
{
    MPI_Comm odd, copy, node;
    int r, n;
    MPI_Comm_split(comm, rank % 2, -rank, &odd);
    MPI_Comm_rank(odd, &r);
    MPI_Comm_size(odd, &n);
    CHECK(n == (size + 1 - rank % 2) / 2);
    CHECK(r == n - 1 - rank / 2);
    int sum, mine = rank;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, odd);
    int wanted = 0;
    for (int i = rank % 2; i < size; i += 2) wanted += i;
    CHECK(sum == wanted);
    MPI_Comm_dup(comm, &copy);
    /* The same tag in two communicators: messages stay apart. */
    if (size > 1 && rank < 2) {
        int a = 1, b = 2, x = 0, y = 0;
        MPI_Request out[2];
        MPI_Isend(&a, 1, MPI_INT, 1 - rank, 9, comm, &out[0]);
        MPI_Isend(&b, 1, MPI_INT, 1 - rank, 9, copy, &out[1]);
        MPI_Recv(&y, 1, MPI_INT, 1 - rank, 9, copy, MPI_STATUS_IGNORE);
        MPI_Recv(&x, 1, MPI_INT, 1 - rank, 9, comm, MPI_STATUS_IGNORE);
        MPI_Waitall(2, out, MPI_STATUSES_IGNORE);
        CHECK(x == 1 && y == 2);
    }
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &n);
    CHECK(n >= 1 && n <= size);
    MPI_Comm_free(&node);
    MPI_Comm_free(&copy);
    MPI_Comm_free(&odd);
    CHECK(odd == MPI_COMM_NULL);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    comm = MPI_COMM_WORLD;
    for (int i = 0; i < 20; i++) MPI_Barrier(comm);
    all(1);
    all(13);
    all(1000);
    all(40000);
    operations();
    communicators();
    CHECK(MPI_Finalize() == MPI_SUCCESS);
    printf("%d checks\n", check_count);
    return 0;
}
