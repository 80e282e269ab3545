/*
 * HUMboldt: messages between ranks, in software and on boards. The functions and their arguments
 * are those of MPI with the prefix HUM_ instead of MPI_;
 * this library's <mpi.h> gives them MPI's names.
 *
 * `baltra cluster run` starts a program; a program that is started directly is a job of one rank.
 * Only the thread that called HUM_Init may call the library. Functions return HUM_SUCCESS or an
 * error class. By default an error ends the whole job with a message that names rank, peer and tag;
 * with HUM_ERRORS_RETURN it is returned, and HUM_Last_error has the text.
 */
#ifndef HUMBOLDT_H
#define HUMBOLDT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Handles. They are compared with ==; each kind has a null handle. */
typedef struct hum_comm *HUM_Comm;
typedef struct hum_type *HUM_Datatype;
typedef struct hum_op *HUM_Op;
typedef struct hum_request *HUM_Request;
typedef struct hum_errhandler *HUM_Errhandler;
typedef struct hum_info *HUM_Info;
typedef intptr_t HUM_Aint;

/* Properties of a message. `bytes` is the size of its payload;
 * HUM_Get_count converts it to elements. */
typedef struct {
    int source, tag, error;
    int cancelled;
    size_t bytes;
} HUM_Status;

typedef void HUM_User_function(void *in, void *inout, int *count, HUM_Datatype *type);

enum {
    HUM_SUCCESS,
    HUM_ERR_BUFFER,
    HUM_ERR_COUNT,
    HUM_ERR_TYPE,      /* invalid type, or the types of message and receive differ */
    HUM_ERR_TAG,
    HUM_ERR_COMM,
    HUM_ERR_RANK,      /* invalid rank */
    HUM_ERR_REQUEST,
    HUM_ERR_ROOT,
    HUM_ERR_OP,
    HUM_ERR_ARG,
    HUM_ERR_TRUNCATE,  /* the message is longer than the buffer */
    HUM_ERR_UNMATCHED, /* a message was not received */
    HUM_ERR_PEER,      /* a rank has died, or left before its message came */
    HUM_ERR_DEADLOCK,  /* ranks wait for one another */
    HUM_ERR_PROTOCOL,  /* a peer sent a malformed packet */
    HUM_ERR_STATE,     /* before HUM_Init, or after HUM_Finalize */
    HUM_ERR_NO_MEM,
    HUM_ERR_SYSTEM,    /* a system call failed; the text has its reason */
    HUM_ERR_UNSUPPORTED,
    HUM_ERR_IN_STATUS, /* HUM_Waitall: the error of each request is in its status */
    HUM_ERR_LASTCODE,
};

enum { HUM_ANY_SOURCE = -2, HUM_ANY_TAG = -1, HUM_PROC_NULL = -3, HUM_ROOT = -4, HUM_UNDEFINED = -32766 };
enum { HUM_TAG_MAX = 0x7fffffff };
enum { HUM_MAX_ERROR_STRING = 512, HUM_MAX_PROCESSOR_NAME = 256, HUM_MAX_OBJECT_NAME = 64 };
enum { HUM_THREAD_SINGLE, HUM_THREAD_FUNNELED, HUM_THREAD_SERIALIZED, HUM_THREAD_MULTIPLE };
enum { HUM_COMM_TYPE_SHARED = 1 };
enum { HUM_TAG_UB = 1, HUM_WTIME_IS_GLOBAL = 2 };

extern struct hum_comm hum_comm_world, hum_comm_self;
#define HUM_COMM_WORLD (&hum_comm_world)
#define HUM_COMM_SELF (&hum_comm_self)
#define HUM_COMM_NULL ((HUM_Comm)0)
#define HUM_REQUEST_NULL ((HUM_Request)0)
#define HUM_DATATYPE_NULL ((HUM_Datatype)0)
#define HUM_OP_NULL ((HUM_Op)0)
#define HUM_INFO_NULL ((HUM_Info)0)
#define HUM_STATUS_IGNORE ((HUM_Status *)0)
#define HUM_STATUSES_IGNORE ((HUM_Status *)0)
#define HUM_IN_PLACE ((void *)-1)
#define HUM_BOTTOM ((void *)0)

extern struct hum_errhandler hum_errors_are_fatal, hum_errors_return;
#define HUM_ERRORS_ARE_FATAL (&hum_errors_are_fatal)
#define HUM_ERRORS_RETURN (&hum_errors_return)

/* Types: those of C, fixed widths, pairs for MINLOC and MAXLOC.
 * BYTE and PACKED match every type. */
extern struct hum_type hum_byte, hum_packed, hum_char, hum_signed_char, hum_unsigned_char, hum_short, hum_unsigned_short,
    hum_int, hum_unsigned, hum_long, hum_unsigned_long, hum_long_long, hum_unsigned_long_long, hum_float, hum_double,
    hum_long_double, hum_bool, hum_float_complex, hum_double_complex, hum_float_int, hum_double_int, hum_long_int,
    hum_short_int, hum_2int, hum_int8, hum_int16, hum_int32, hum_int64, hum_uint8, hum_uint16, hum_uint32, hum_uint64;
#define HUM_BYTE (&hum_byte)
#define HUM_PACKED (&hum_packed)
#define HUM_CHAR (&hum_char)
#define HUM_SIGNED_CHAR (&hum_signed_char)
#define HUM_UNSIGNED_CHAR (&hum_unsigned_char)
#define HUM_SHORT (&hum_short)
#define HUM_UNSIGNED_SHORT (&hum_unsigned_short)
#define HUM_INT (&hum_int)
#define HUM_UNSIGNED (&hum_unsigned)
#define HUM_LONG (&hum_long)
#define HUM_UNSIGNED_LONG (&hum_unsigned_long)
#define HUM_LONG_LONG (&hum_long_long)
#define HUM_UNSIGNED_LONG_LONG (&hum_unsigned_long_long)
#define HUM_FLOAT (&hum_float)
#define HUM_DOUBLE (&hum_double)
#define HUM_LONG_DOUBLE (&hum_long_double)
#define HUM_C_BOOL (&hum_bool)
#define HUM_C_FLOAT_COMPLEX (&hum_float_complex)
#define HUM_C_DOUBLE_COMPLEX (&hum_double_complex)
#define HUM_FLOAT_INT (&hum_float_int)
#define HUM_DOUBLE_INT (&hum_double_int)
#define HUM_LONG_INT (&hum_long_int)
#define HUM_SHORT_INT (&hum_short_int)
#define HUM_2INT (&hum_2int)
#define HUM_INT8_T (&hum_int8)
#define HUM_INT16_T (&hum_int16)
#define HUM_INT32_T (&hum_int32)
#define HUM_INT64_T (&hum_int64)
#define HUM_UINT8_T (&hum_uint8)
#define HUM_UINT16_T (&hum_uint16)
#define HUM_UINT32_T (&hum_uint32)
#define HUM_UINT64_T (&hum_uint64)

extern struct hum_op hum_op_max, hum_op_min, hum_op_sum, hum_op_prod, hum_op_land, hum_op_band, hum_op_lor, hum_op_bor,
    hum_op_lxor, hum_op_bxor, hum_op_maxloc, hum_op_minloc;
#define HUM_MAX (&hum_op_max)
#define HUM_MIN (&hum_op_min)
#define HUM_SUM (&hum_op_sum)
#define HUM_PROD (&hum_op_prod)
#define HUM_LAND (&hum_op_land)
#define HUM_BAND (&hum_op_band)
#define HUM_LOR (&hum_op_lor)
#define HUM_BOR (&hum_op_bor)
#define HUM_LXOR (&hum_op_lxor)
#define HUM_BXOR (&hum_op_bxor)
#define HUM_MAXLOC (&hum_op_maxloc)
#define HUM_MINLOC (&hum_op_minloc)

/*
 * The job. Init waits until every rank has started (HUM_START_MS, 60 s) and does not change argc
 * and argv. Finalize waits for all ranks and fails if a message was not received.
 * Abort ends every rank.
 */
int HUM_Init(int *argc, char ***argv);
int HUM_Init_thread(int *argc, char ***argv, int required, int *provided);
int HUM_Initialized(int *flag);
int HUM_Finalize(void);
int HUM_Finalized(int *flag);
int HUM_Abort(HUM_Comm comm, int code);
int HUM_Query_thread(int *provided);
int HUM_Get_processor_name(char *name, int *length);
int HUM_Get_version(int *version, int *subversion);
double HUM_Wtime(void); /* seconds */
double HUM_Wtick(void);

/* Communicators. Dup, Split and Free are collective. */
int HUM_Comm_rank(HUM_Comm comm, int *rank);
int HUM_Comm_size(HUM_Comm comm, int *size);
int HUM_Comm_dup(HUM_Comm comm, HUM_Comm *made);
int HUM_Comm_split(HUM_Comm comm, int color, int key, HUM_Comm *made);
int HUM_Comm_split_type(HUM_Comm comm, int type, int key, HUM_Info info, HUM_Comm *made);
int HUM_Comm_free(HUM_Comm *comm);
int HUM_Comm_get_attr(HUM_Comm comm, int key, void *value, int *flag);
int HUM_Comm_set_errhandler(HUM_Comm comm, HUM_Errhandler handler);
int HUM_Comm_get_errhandler(HUM_Comm comm, HUM_Errhandler *handler);

/*
 * Messages. Blocking functions return when the buffer may be used again; Ssend when the message is
 * being received. A buffer of Isend or Irecv belongs to the library until Wait or Test reports its
 * completion, which also frees the request.
 */
int HUM_Send(const void *buffer, int count, HUM_Datatype type, int destination, int tag, HUM_Comm comm);
int HUM_Ssend(const void *buffer, int count, HUM_Datatype type, int destination, int tag, HUM_Comm comm);
int HUM_Rsend(const void *buffer, int count, HUM_Datatype type, int destination, int tag, HUM_Comm comm);
int HUM_Recv(void *buffer, int count, HUM_Datatype type, int source, int tag, HUM_Comm comm, HUM_Status *status);
int HUM_Isend(const void *buffer, int count, HUM_Datatype type, int destination, int tag, HUM_Comm comm, HUM_Request *request);
int HUM_Issend(const void *buffer, int count, HUM_Datatype type, int destination, int tag, HUM_Comm comm, HUM_Request *request);
int HUM_Irecv(void *buffer, int count, HUM_Datatype type, int source, int tag, HUM_Comm comm, HUM_Request *request);
int HUM_Sendrecv(const void *out, int out_count, HUM_Datatype out_type, int destination, int out_tag, void *in, int in_count,
                 HUM_Datatype in_type, int source, int in_tag, HUM_Comm comm, HUM_Status *status);
int HUM_Sendrecv_replace(void *buffer, int count, HUM_Datatype type, int destination, int out_tag, int source, int in_tag,
                         HUM_Comm comm, HUM_Status *status);
int HUM_Wait(HUM_Request *request, HUM_Status *status);
int HUM_Waitall(int count, HUM_Request requests[], HUM_Status statuses[]);
int HUM_Waitany(int count, HUM_Request requests[], int *index, HUM_Status *status);
int HUM_Test(HUM_Request *request, int *flag, HUM_Status *status);
int HUM_Testall(int count, HUM_Request requests[], int *flag, HUM_Status statuses[]);
int HUM_Testany(int count, HUM_Request requests[], int *index, int *flag, HUM_Status *status);
int HUM_Probe(int source, int tag, HUM_Comm comm, HUM_Status *status);
int HUM_Iprobe(int source, int tag, HUM_Comm comm, int *flag, HUM_Status *status);
int HUM_Get_count(const HUM_Status *status, HUM_Datatype type, int *count);

/*
 * Streams: bytes from one rank to another, in order and in pieces of any size. One end pushes and
 * the other pulls, as on a socket; both directions need two streams. Each end opens its own handle
 * with the rank of the other end. Pull waits for at least one byte and returns at most `room`; 0
 * bytes mean the end, after Stream_end. The messages of a stream have `channel` as their tag, which
 * these two ranks must not use otherwise. Errors are those of HUM_Send and HUM_Recv.
 */
enum { HUM_STREAM_BYTES = 1448 };
typedef struct {
    int peer, channel;
    HUM_Comm comm;
    int at, there, ended;
    unsigned char piece[HUM_STREAM_BYTES];
} HUM_Stream;
void HUM_Stream_open(HUM_Stream *stream, int peer, int channel, HUM_Comm comm);
int HUM_Push(HUM_Stream *stream, const void *data, size_t bytes);
int HUM_Stream_end(HUM_Stream *stream);
int HUM_Pull(HUM_Stream *stream, void *data, size_t room, size_t *bytes);

/* Collectives: every rank of the communicator calls them, in the same order. */
int HUM_Barrier(HUM_Comm comm);
int HUM_Bcast(void *buffer, int count, HUM_Datatype type, int root, HUM_Comm comm);
int HUM_Reduce(const void *out, void *in, int count, HUM_Datatype type, HUM_Op op, int root, HUM_Comm comm);
int HUM_Allreduce(const void *out, void *in, int count, HUM_Datatype type, HUM_Op op, HUM_Comm comm);
int HUM_Scan(const void *out, void *in, int count, HUM_Datatype type, HUM_Op op, HUM_Comm comm);
int HUM_Reduce_scatter(const void *out, void *in, const int counts[], HUM_Datatype type, HUM_Op op, HUM_Comm comm);
int HUM_Reduce_scatter_block(const void *out, void *in, int count, HUM_Datatype type, HUM_Op op, HUM_Comm comm);
int HUM_Gather(const void *out, int out_count, HUM_Datatype out_type, void *in, int in_count, HUM_Datatype in_type, int root,
               HUM_Comm comm);
int HUM_Gatherv(const void *out, int out_count, HUM_Datatype out_type, void *in, const int in_counts[], const int places[],
                HUM_Datatype in_type, int root, HUM_Comm comm);
int HUM_Scatter(const void *out, int out_count, HUM_Datatype out_type, void *in, int in_count, HUM_Datatype in_type, int root,
                HUM_Comm comm);
int HUM_Scatterv(const void *out, const int out_counts[], const int places[], HUM_Datatype out_type, void *in, int in_count,
                 HUM_Datatype in_type, int root, HUM_Comm comm);
int HUM_Allgather(const void *out, int out_count, HUM_Datatype out_type, void *in, int in_count, HUM_Datatype in_type,
                  HUM_Comm comm);
int HUM_Allgatherv(const void *out, int out_count, HUM_Datatype out_type, void *in, const int in_counts[], const int places[],
                   HUM_Datatype in_type, HUM_Comm comm);
int HUM_Alltoall(const void *out, int out_count, HUM_Datatype out_type, void *in, int in_count, HUM_Datatype in_type,
                 HUM_Comm comm);
int HUM_Alltoallv(const void *out, const int out_counts[], const int out_places[], HUM_Datatype out_type, void *in,
                  const int in_counts[], const int in_places[], HUM_Datatype in_type, HUM_Comm comm);

/* Types and operations. Derived types may be used without Commit. */
int HUM_Type_size(HUM_Datatype type, int *bytes);
int HUM_Type_get_extent(HUM_Datatype type, HUM_Aint *lower, HUM_Aint *extent);
int HUM_Type_contiguous(int count, HUM_Datatype type, HUM_Datatype *made);
int HUM_Type_vector(int count, int length, int stride, HUM_Datatype type, HUM_Datatype *made);
int HUM_Type_create_struct(int count, const int lengths[], const HUM_Aint places[], const HUM_Datatype types[],
                           HUM_Datatype *made);
int HUM_Type_commit(HUM_Datatype *type);
int HUM_Type_free(HUM_Datatype *type);
int HUM_Get_address(const void *location, HUM_Aint *address);
int HUM_Op_create(HUM_User_function *function, int commutes, HUM_Op *made);
int HUM_Op_free(HUM_Op *op);

/* Allocates memory; free it with HUM_Free_mem. */
int HUM_Alloc_mem(HUM_Aint bytes, HUM_Info info, void *pointer);
int HUM_Free_mem(void *pointer);

/* Errors. Last_error returns the text of the newest failure, which the library owns,
 * valid until the next failure. */
int HUM_Error_string(int code, char *text, int *length);
int HUM_Error_class(int code, int *class_of);
const char *HUM_Last_error(void);

#ifdef __cplusplus
}
#endif

#endif
