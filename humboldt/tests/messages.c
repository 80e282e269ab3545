/* Messages between ranks, of all sizes around the protocol's limits; any number of ranks ≥ 2. */
#include "check.h"
#include <mpi.h>
#include <stdint.h>
#include <string.h>

static int rank, size;

/* Bytes that depend on their source and position. */
static void fill(uint8_t *at, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++) at[i] = (uint8_t)((i * 2654435761u + seed * 40503u) >> 7);
}
static int same(const uint8_t *at, size_t n, unsigned seed)
{
    for (size_t i = 0; i < n; i++)
        if (at[i] != (uint8_t)((i * 2654435761u + seed * 40503u) >> 7)) return 0;
    return 1;
}

static void sizes(void)
{
    static const int each[] = {0, 1, 39, 40, 41, 63, 64, 65, 255, 256, 257, 4095, 4096, 16383, 16384, 16385, 32767, 32768, 32769, 65535, 65536, 65537, 262143, 262144, 262145, 1 << 20, (5 << 20) + 3};
    uint8_t *buffer = malloc(6 << 20);
    for (unsigned i = 0; i < sizeof each / sizeof *each; i++) {
        int n = each[i], next = (rank + 1) % size, before = (rank - 1 + size) % size;
        MPI_Status status;
        int count;
        /* Round the ring, first blocking in order, then with the receive before and after the
         * send. */
        if (rank == 0) {
            fill(buffer, (size_t)n, i);
            CHECK(MPI_Send(buffer, n, MPI_BYTE, next, (int)i, MPI_COMM_WORLD) == MPI_SUCCESS);
            memset(buffer, 0, (size_t)n);
        }
        CHECK(MPI_Recv(buffer, n, MPI_BYTE, before, (int)i, MPI_COMM_WORLD, &status) == MPI_SUCCESS);
        CHECK(status.MPI_SOURCE == before && status.MPI_TAG == (int)i);
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK(count == n && same(buffer, (size_t)n, i));
        if (rank != 0) CHECK(MPI_Send(buffer, n, MPI_BYTE, next, (int)i, MPI_COMM_WORLD) == MPI_SUCCESS);

        uint8_t *in = malloc((size_t)n + 1);
        MPI_Request requests[2];
        fill(buffer, (size_t)n, i + 100 * (unsigned)rank);
        if (i % 2) MPI_Irecv(in, n, MPI_BYTE, before, 7, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(buffer, n, MPI_BYTE, next, 7, MPI_COMM_WORLD, &requests[1]);
        if (!(i % 2)) MPI_Irecv(in, n, MPI_BYTE, before, 7, MPI_COMM_WORLD, &requests[0]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(requests[0] == MPI_REQUEST_NULL && same(in, (size_t)n, i + 100 * (unsigned)before));
        CHECK(MPI_Sendrecv(buffer, n, MPI_BYTE, before, 8, in, n, MPI_BYTE, next, 8, MPI_COMM_WORLD, &status) == MPI_SUCCESS);
        CHECK(same(in, (size_t)n, i + 100 * (unsigned)next));
        free(in);
    }
    free(buffer);
}

/* Messages of one pair match in order, whatever their size; tags and sources choose among them. */
static void order(void)
{
    enum { N = 200 };
    static int large[50000];
    if (rank == 1) {
        for (int i = 0; i < N; i++) {
            large[0] = i;
            MPI_Send(large, i % 10 == 0 ? 50000 : 1, MPI_INT, 0, 5, MPI_COMM_WORLD);
        }
        for (int tag = 0; tag < 5; tag++) MPI_Send(&tag, 1, MPI_INT, 0, 1000000 + tag, MPI_COMM_WORLD);
    }
    if (rank == 0) {
        MPI_Status status;
        int count, value = -1, flag = 0;
        for (int i = 0; i < N; i++) {
            MPI_Probe(1, 5, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_INT, &count);
            CHECK(count == (i % 10 == 0 ? 50000 : 1));
            MPI_Recv(large, 50000, MPI_INT, MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(large[0] == i);
        }
        for (int tag = 4; tag > 0; tag--) {
            MPI_Recv(&value, 1, MPI_INT, 1, 1000000 + tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(value == tag);
        }
        while (!flag) MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
        CHECK(status.MPI_TAG == 1000000 && status.MPI_SOURCE == 1);
        MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        CHECK(value == 0 && status.MPI_TAG == 1000000);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* Many concurrent messages from all ranks to all ranks, received in the order of arrival. */
static void flood(void)
{
    enum { N = 300 };
    int *out = malloc(sizeof(int) * N * (size_t)size);
    MPI_Request *requests = malloc(sizeof *requests * N * (size_t)size);
    long sum = 0, wanted = 0;
    for (int i = 0; i < N; i++)
        for (int r = 0; r < size; r++) {
            int at = i * size + r;
            out[at] = rank * 1000 + i;
            MPI_Isend(&out[at], 1, MPI_INT, r, 3, MPI_COMM_WORLD, &requests[at]);
        }
    for (int i = 0; i < N * size; i++) {
        int value;
        MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sum += value;
    }
    MPI_Waitall(N * size, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < N; i++)
        for (int r = 0; r < size; r++) wanted += r * 1000 + i;
    CHECK(sum == wanted);
    free(out);
    free(requests);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void waits_and_tests(void)
{
    MPI_Request requests[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    int values[3] = {0}, flag, index;
    MPI_Status status;
    MPI_Test(&requests[0], &flag, &status);
    CHECK(flag);
    MPI_Waitany(3, requests, &index, &status);
    CHECK(index == MPI_UNDEFINED);
    if (rank == 0) {
        for (int i = 0; i < 3; i++) MPI_Irecv(&values[i], 1, MPI_INT, 1, 20 + i, MPI_COMM_WORLD, &requests[i]);
        MPI_Test(&requests[0], &flag, &status);
        CHECK(!flag);
        MPI_Send(NULL, 0, MPI_INT, 1, 30, MPI_COMM_WORLD);
        MPI_Waitany(3, requests, &index, &status);
        CHECK(index == 2 && values[2] == 2 && status.MPI_TAG == 22);
        MPI_Send(NULL, 0, MPI_INT, 1, 31, MPI_COMM_WORLD);
        for (flag = 0; !flag;) MPI_Testall(3, requests, &flag, MPI_STATUSES_IGNORE);
        CHECK(values[0] == 0 && values[1] == 1 && requests[1] == MPI_REQUEST_NULL);
    } else if (rank == 1) {
        MPI_Recv(NULL, 0, MPI_INT, 0, 30, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 2; i >= 0; i--) {
            MPI_Send(&i, 1, MPI_INT, 0, 20 + i, MPI_COMM_WORLD);
            if (i == 2) MPI_Recv(NULL, 0, MPI_INT, 0, 31, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
    /* PROC_NULL neither waits nor fails. */
    CHECK(MPI_Send(values, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD) == MPI_SUCCESS);
    CHECK(MPI_Recv(values, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status) == MPI_SUCCESS && status.MPI_SOURCE == MPI_PROC_NULL);
    /* Synchronous sends of any size end when they are received. */
    static double block[40000];
    for (int n = 1; n <= 40000; n *= 200) {
        if (rank == 0) CHECK(MPI_Ssend(block, n, MPI_DOUBLE, 1, 40, MPI_COMM_WORLD) == MPI_SUCCESS);
        if (rank == 1) CHECK(MPI_Recv(block, n, MPI_DOUBLE, 0, 40, MPI_COMM_WORLD, &status) == MPI_SUCCESS);
    }
    int mine = rank;
    MPI_Sendrecv_replace(&mine, 1, MPI_INT, (rank + 1) % size, 50, (rank - 1 + size) % size, 50, MPI_COMM_WORLD, &status);
    CHECK(mine == (rank - 1 + size) % size);
}

/* A column of a matrix, and structures, small and large. */
static void derived(void)
{
    enum { N = 300 };
    static double a[N][N], b[N][N];
    MPI_Datatype column, record;
    int bytes;
    MPI_Aint lower, extent;
    MPI_Type_vector(N, 2, N, MPI_DOUBLE, &column);
    MPI_Type_commit(&column);
    MPI_Type_size(column, &bytes);
    MPI_Type_get_extent(column, &lower, &extent);
    CHECK(bytes == (int)sizeof(double) * 2 * N && lower == 0 && extent == (MPI_Aint)sizeof(double) * (N * (N - 1) + 2));
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) a[i][j] = rank * 1e6 + i * N + j;
    int next = (rank + 1) % size, before = (rank - 1 + size) % size;
    MPI_Sendrecv(&a[0][N - 2], 1, column, next, 1, &b[0][0], 1, column, before, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < N; i++) CHECK(b[i][0] == before * 1e6 + i * N + N - 2 && b[i][1] == before * 1e6 + i * N + N - 1 && b[i][2] == 0);
    /* A column arrives as plain doubles. */
    static double line[2 * N];
    MPI_Sendrecv(&a[0][0], 1, column, next, 2, line, 2 * N, MPI_DOUBLE, before, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(line[2] == before * 1e6 + N && line[2 * N - 1] == before * 1e6 + N * (N - 1) + 1);
    struct point {
        char name;
        double x;
        int n;
    } out = {'a', rank, rank + 1}, in = {0, 0, 0};
    int lengths[3] = {1, 1, 1};
    MPI_Aint places[3] = {offsetof(struct point, name), offsetof(struct point, x), offsetof(struct point, n)};
    MPI_Datatype types[3] = {MPI_CHAR, MPI_DOUBLE, MPI_INT};
    MPI_Type_create_struct(3, lengths, places, types, &record);
    MPI_Type_get_extent(record, &lower, &extent);
    CHECK(extent == sizeof(struct point));
    MPI_Sendrecv(&out, 1, record, next, 3, &in, 1, record, before, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(in.name == 'a' && in.x == before && in.n == before + 1);
    MPI_Type_free(&column);
    MPI_Type_free(&record);
    CHECK(record == MPI_DATATYPE_NULL);
}

/* Types match by their elements, however the types were constructed. */
static void signatures(void)
{
    int next = (rank + 1) % size, before = (rank - 1 + size) % size;
    MPI_Datatype two, mixed, again;
    int ones[2] = {1, 1};
    MPI_Aint places[2] = {0, 4}, apart[2] = {0, 8};
    MPI_Type_create_struct(2, ones, places, (MPI_Datatype[]){MPI_INT, MPI_INT}, &two);
    MPI_Type_create_struct(2, ones, apart, (MPI_Datatype[]){two, MPI_DOUBLE}, &mixed);
    MPI_Type_create_struct(2, ones, places, (MPI_Datatype[]){MPI_FLOAT, MPI_INT}, &again);
    struct mixed {
        int a, b;
        double x;
    } whole = {rank, -rank, 0.5}, came = {0, 0, 0};
    int pair[2] = {rank + 5, rank + 6}, in[2] = {0, 0};
    MPI_Status status;
    MPI_Sendrecv(pair, 1, two, next, 1, in, 2, MPI_INT, before, 1, MPI_COMM_WORLD, &status);
    CHECK(in[0] == before + 5 && in[1] == before + 6);
    MPI_Sendrecv(pair, 2, MPI_INT, next, 2, in, 1, MPI_2INT, before, 2, MPI_COMM_WORLD, &status);
    CHECK(in[0] == before + 5 && in[1] == before + 6);
    struct {
        float x;
        int n;
    } out = {1.5f, rank}, found = {0, 0};
    MPI_Sendrecv(&out, 1, again, next, 3, &found, 1, MPI_FLOAT_INT, before, 3, MPI_COMM_WORLD, &status);
    CHECK(found.x == 1.5f && found.n == before);
    /* A message may end within a structure: its first elements are received. */
    MPI_Sendrecv(pair, 2, MPI_INT, next, 4, &came, 1, mixed, before, 4, MPI_COMM_WORLD, &status);
    CHECK(came.a == before + 5 && came.b == before + 6 && came.x == 0);
    MPI_Sendrecv(&whole, 1, mixed, next, 5, &came, 1, mixed, before, 5, MPI_COMM_WORLD, &status);
    CHECK(came.a == before && came.b == -before && came.x == 0.5);
    /* Other elements are refused, also within structures. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    float wrong[4] = {0};
    CHECK(MPI_Sendrecv(wrong, 2, MPI_FLOAT, next, 6, &came, 1, mixed, before, 6, MPI_COMM_WORLD, &status) == MPI_ERR_IN_STATUS ||
          status.MPI_ERROR == MPI_ERR_TYPE);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_Sendrecv(pair, 1, two, next, 7, wrong, 2, MPI_FLOAT, before, 7, MPI_COMM_WORLD, &status) != MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Type_free(&two);
    MPI_Type_free(&mixed);
    MPI_Type_free(&again);
}

/* A freed type or communicator stays valid for messages in flight. */
static void freed(void)
{
    int next = (rank + 1) % size, before = (rank - 1 + size) % size;
    enum { N = 64 };
    double in[8 * N], out[8 * N];
    MPI_Datatype column;
    MPI_Comm other;
    MPI_Request requests[2];
    MPI_Status statuses[2];
    for (int i = 0; i < 8 * N; i++) in[i] = -1, out[i] = rank + i;
    MPI_Type_vector(N, 1, 8, MPI_DOUBLE, &column);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &other);
    MPI_Comm_set_errhandler(other, MPI_ERRORS_RETURN);
    int to = size - 1 - next, from = size - 1 - before;
    MPI_Irecv(in, 1, column, from, 9, other, &requests[0]);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Isend(out, 1, column, to, 9, other, &requests[1]);
    MPI_Type_free(&column);
    MPI_Comm_free(&other);
    CHECK(column == MPI_DATATYPE_NULL && other == MPI_COMM_NULL);
    /* Resources of freed objects are not reused before their requests have ended. */
    void *taken = malloc(sizeof(double) * N * 2);
    memset(taken, 0x77, sizeof(double) * N * 2);
    MPI_Comm same;
    MPI_Comm_dup(MPI_COMM_WORLD, &same);
    MPI_Waitall(2, requests, statuses);
    CHECK(statuses[0].MPI_SOURCE == from);
    for (int i = 0; i < 8 * N; i++) CHECK(in[i] == (i % 8 == 0 ? before + i : -1));
    MPI_Comm_free(&same);
    free(taken);
    /* Neither contexts nor memory run out. */
    MPI_Comm parts[3];
    for (int i = 0; i < 200; i++) {
        for (int n = 0; n < 3; n++) MPI_Comm_split(MPI_COMM_WORLD, rank % (n + 1), rank, &parts[n]);
        int sum = 1;
        MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, parts[i % 3]);
        CHECK(sum == (size - rank % (i % 3 + 1) + i % 3) / (i % 3 + 1));
        for (int n = 0; n < 3; n++) MPI_Comm_free(&parts[(n + i) % 3]);
    }
}

/* A count that an int does not hold is undefined. */
static void counts(void)
{
    int count;
    MPI_Status status = {.bytes = (size_t)1 << 33};
    MPI_Get_count(&status, MPI_BYTE, &count);
    CHECK(count == MPI_UNDEFINED);
    MPI_Get_count(&status, MPI_DOUBLE, &count);
    CHECK(count == 1 << 30);
    status.bytes = 0x7fffffff;
    MPI_Get_count(&status, MPI_BYTE, &count);
    CHECK(count == 0x7fffffff);
    MPI_Datatype large;
    MPI_Type_contiguous(1 << 20, MPI_DOUBLE, &large);
    MPI_Datatype larger;
    MPI_Type_contiguous(1 << 10, large, &larger);
    MPI_Type_size(larger, &count);
    CHECK(count == MPI_UNDEFINED);
    MPI_Type_free(&large);
    MPI_Type_free(&larger);
}

int main(int argc, char **argv)
{
    int flag;
    MPI_Initialized(&flag);
    CHECK(!flag);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    sizes();
    order();
    flood();
    waits_and_tests();
    derived();
    signatures();
    freed();
    counts();
    CHECK(MPI_Finalize() == MPI_SUCCESS);
    printf("%d checks\n", check_count);
    return 0;
}
