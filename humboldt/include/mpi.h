/*
 * MPI's names for HUMboldt's functions, so that an ordinary MPI program compiles against this
 * library. Functions that the library lacks are absent here, so the compiler reports them. The
 * names are macros; a program under another MPI may use humboldt.h.
 */
#ifndef HUMBOLDT_MPI_H
#define HUMBOLDT_MPI_H

#include "humboldt.h"

/* The lowest version, because later versions promise functions that are absent here. */
#define MPI_VERSION 1
#define MPI_SUBVERSION 0
#define HUMBOLDT 1

/* The members of MPI_Status. */
#define MPI_SOURCE source
#define MPI_TAG tag
#define MPI_ERROR error

#define MPI_Comm HUM_Comm
#define MPI_Datatype HUM_Datatype
#define MPI_Op HUM_Op
#define MPI_Request HUM_Request
#define MPI_Errhandler HUM_Errhandler
#define MPI_Info HUM_Info
#define MPI_Aint HUM_Aint
#define MPI_Status HUM_Status
#define MPI_User_function HUM_User_function

#define MPI_User_function HUM_User_function
#define MPI_Init HUM_Init
#define MPI_Init_thread HUM_Init_thread
#define MPI_Initialized HUM_Initialized
#define MPI_Finalize HUM_Finalize
#define MPI_Finalized HUM_Finalized
#define MPI_Abort HUM_Abort
#define MPI_Query_thread HUM_Query_thread
#define MPI_Get_processor_name HUM_Get_processor_name
#define MPI_Get_version HUM_Get_version
#define MPI_Wtime HUM_Wtime
#define MPI_Wtick HUM_Wtick
#define MPI_Comm_rank HUM_Comm_rank
#define MPI_Comm_size HUM_Comm_size
#define MPI_Comm_dup HUM_Comm_dup
#define MPI_Comm_split HUM_Comm_split
#define MPI_Comm_split_type HUM_Comm_split_type
#define MPI_Comm_free HUM_Comm_free
#define MPI_Comm_get_attr HUM_Comm_get_attr
#define MPI_Comm_set_errhandler HUM_Comm_set_errhandler
#define MPI_Comm_get_errhandler HUM_Comm_get_errhandler
#define MPI_Send HUM_Send
#define MPI_Ssend HUM_Ssend
#define MPI_Rsend HUM_Rsend
#define MPI_Recv HUM_Recv
#define MPI_Isend HUM_Isend
#define MPI_Issend HUM_Issend
#define MPI_Irecv HUM_Irecv
#define MPI_Sendrecv HUM_Sendrecv
#define MPI_Sendrecv_replace HUM_Sendrecv_replace
#define MPI_Wait HUM_Wait
#define MPI_Waitall HUM_Waitall
#define MPI_Waitany HUM_Waitany
#define MPI_Test HUM_Test
#define MPI_Testall HUM_Testall
#define MPI_Testany HUM_Testany
#define MPI_Probe HUM_Probe
#define MPI_Iprobe HUM_Iprobe
#define MPI_Get_count HUM_Get_count
#define MPI_Barrier HUM_Barrier
#define MPI_Bcast HUM_Bcast
#define MPI_Reduce HUM_Reduce
#define MPI_Allreduce HUM_Allreduce
#define MPI_Scan HUM_Scan
#define MPI_Reduce_scatter HUM_Reduce_scatter
#define MPI_Reduce_scatter_block HUM_Reduce_scatter_block
#define MPI_Gather HUM_Gather
#define MPI_Gatherv HUM_Gatherv
#define MPI_Scatter HUM_Scatter
#define MPI_Scatterv HUM_Scatterv
#define MPI_Allgather HUM_Allgather
#define MPI_Allgatherv HUM_Allgatherv
#define MPI_Alltoall HUM_Alltoall
#define MPI_Alltoallv HUM_Alltoallv
#define MPI_Type_size HUM_Type_size
#define MPI_Type_get_extent HUM_Type_get_extent
#define MPI_Type_contiguous HUM_Type_contiguous
#define MPI_Type_vector HUM_Type_vector
#define MPI_Type_create_struct HUM_Type_create_struct
#define MPI_Type_commit HUM_Type_commit
#define MPI_Type_free HUM_Type_free
#define MPI_Get_address HUM_Get_address
#define MPI_Op_create HUM_Op_create
#define MPI_Op_free HUM_Op_free
#define MPI_Alloc_mem HUM_Alloc_mem
#define MPI_Free_mem HUM_Free_mem
#define MPI_Error_string HUM_Error_string
#define MPI_Error_class HUM_Error_class

#define MPI_SUCCESS HUM_SUCCESS
#define MPI_ERR_BUFFER HUM_ERR_BUFFER
#define MPI_ERR_COUNT HUM_ERR_COUNT
#define MPI_ERR_TYPE HUM_ERR_TYPE
#define MPI_ERR_TAG HUM_ERR_TAG
#define MPI_ERR_COMM HUM_ERR_COMM
#define MPI_ERR_RANK HUM_ERR_RANK
#define MPI_ERR_REQUEST HUM_ERR_REQUEST
#define MPI_ERR_ROOT HUM_ERR_ROOT
#define MPI_ERR_OP HUM_ERR_OP
#define MPI_ERR_ARG HUM_ERR_ARG
#define MPI_ERR_TRUNCATE HUM_ERR_TRUNCATE
#define MPI_ERR_NO_MEM HUM_ERR_NO_MEM
#define MPI_ERR_IN_STATUS HUM_ERR_IN_STATUS
#define MPI_ERR_LASTCODE HUM_ERR_LASTCODE
#define MPI_ANY_SOURCE HUM_ANY_SOURCE
#define MPI_ANY_TAG HUM_ANY_TAG
#define MPI_PROC_NULL HUM_PROC_NULL
#define MPI_ROOT HUM_ROOT
#define MPI_UNDEFINED HUM_UNDEFINED
#define MPI_MAX_ERROR_STRING HUM_MAX_ERROR_STRING
#define MPI_MAX_PROCESSOR_NAME HUM_MAX_PROCESSOR_NAME
#define MPI_MAX_OBJECT_NAME HUM_MAX_OBJECT_NAME
#define MPI_THREAD_SINGLE HUM_THREAD_SINGLE
#define MPI_THREAD_FUNNELED HUM_THREAD_FUNNELED
#define MPI_THREAD_SERIALIZED HUM_THREAD_SERIALIZED
#define MPI_THREAD_MULTIPLE HUM_THREAD_MULTIPLE
#define MPI_COMM_TYPE_SHARED HUM_COMM_TYPE_SHARED
#define MPI_TAG_UB HUM_TAG_UB
#define MPI_WTIME_IS_GLOBAL HUM_WTIME_IS_GLOBAL

/* Classes to which MPI gives one name. */
#define MPI_ERR_OTHER HUM_ERR_PEER
#define MPI_ERR_INTERN HUM_ERR_SYSTEM
#define MPI_ERR_UNKNOWN HUM_ERR_LASTCODE
#define MPI_ERR_PENDING HUM_ERR_REQUEST

#define MPI_COMM_WORLD HUM_COMM_WORLD
#define MPI_COMM_SELF HUM_COMM_SELF
#define MPI_COMM_NULL HUM_COMM_NULL
#define MPI_REQUEST_NULL HUM_REQUEST_NULL
#define MPI_DATATYPE_NULL HUM_DATATYPE_NULL
#define MPI_OP_NULL HUM_OP_NULL
#define MPI_INFO_NULL HUM_INFO_NULL
#define MPI_STATUS_IGNORE HUM_STATUS_IGNORE
#define MPI_STATUSES_IGNORE HUM_STATUSES_IGNORE
#define MPI_IN_PLACE HUM_IN_PLACE
#define MPI_BOTTOM HUM_BOTTOM
#define MPI_ERRORS_ARE_FATAL HUM_ERRORS_ARE_FATAL
#define MPI_ERRORS_RETURN HUM_ERRORS_RETURN
#define MPI_BYTE HUM_BYTE
#define MPI_PACKED HUM_PACKED
#define MPI_CHAR HUM_CHAR
#define MPI_SIGNED_CHAR HUM_SIGNED_CHAR
#define MPI_UNSIGNED_CHAR HUM_UNSIGNED_CHAR
#define MPI_SHORT HUM_SHORT
#define MPI_UNSIGNED_SHORT HUM_UNSIGNED_SHORT
#define MPI_INT HUM_INT
#define MPI_UNSIGNED HUM_UNSIGNED
#define MPI_LONG HUM_LONG
#define MPI_UNSIGNED_LONG HUM_UNSIGNED_LONG
#define MPI_LONG_LONG HUM_LONG_LONG
#define MPI_UNSIGNED_LONG_LONG HUM_UNSIGNED_LONG_LONG
#define MPI_FLOAT HUM_FLOAT
#define MPI_DOUBLE HUM_DOUBLE
#define MPI_LONG_DOUBLE HUM_LONG_DOUBLE
#define MPI_C_BOOL HUM_C_BOOL
#define MPI_C_FLOAT_COMPLEX HUM_C_FLOAT_COMPLEX
#define MPI_C_DOUBLE_COMPLEX HUM_C_DOUBLE_COMPLEX
#define MPI_FLOAT_INT HUM_FLOAT_INT
#define MPI_DOUBLE_INT HUM_DOUBLE_INT
#define MPI_LONG_INT HUM_LONG_INT
#define MPI_SHORT_INT HUM_SHORT_INT
#define MPI_2INT HUM_2INT
#define MPI_INT8_T HUM_INT8_T
#define MPI_INT16_T HUM_INT16_T
#define MPI_INT32_T HUM_INT32_T
#define MPI_INT64_T HUM_INT64_T
#define MPI_UINT8_T HUM_UINT8_T
#define MPI_UINT16_T HUM_UINT16_T
#define MPI_UINT32_T HUM_UINT32_T
#define MPI_UINT64_T HUM_UINT64_T
#define MPI_MAX HUM_MAX
#define MPI_MIN HUM_MIN
#define MPI_SUM HUM_SUM
#define MPI_PROD HUM_PROD
#define MPI_LAND HUM_LAND
#define MPI_BAND HUM_BAND
#define MPI_LOR HUM_LOR
#define MPI_BOR HUM_BOR
#define MPI_LXOR HUM_LXOR
#define MPI_BXOR HUM_BXOR
#define MPI_MAXLOC HUM_MAXLOC
#define MPI_MINLOC HUM_MINLOC
#define MPI_LONG_LONG_INT HUM_LONG_LONG
#define MPI_C_COMPLEX HUM_C_FLOAT_COMPLEX

/* Names from before MPI 3. */
#define MPI_Errhandler_set HUM_Comm_set_errhandler
#define MPI_Address HUM_Get_address

#endif
