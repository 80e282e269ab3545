/* Names and handling of errors. */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct hum_errhandler {
    bool fatal;
};
struct hum_errhandler hum_errors_are_fatal = {true}, hum_errors_return = {false};

static char last[HUM_MAX_ERROR_STRING];

static const char *const texts[HUM_ERR_LASTCODE] = {
    [HUM_SUCCESS] = "no error",
    [HUM_ERR_BUFFER] = "a buffer cannot be used",
    [HUM_ERR_COUNT] = "a count is negative or too large",
    [HUM_ERR_TYPE] = "invalid type, or types differ",
    [HUM_ERR_TAG] = "a tag is out of range",
    [HUM_ERR_COMM] = "invalid communicator",
    [HUM_ERR_RANK] = "invalid rank",
    [HUM_ERR_REQUEST] = "invalid request",
    [HUM_ERR_ROOT] = "invalid root",
    [HUM_ERR_OP] = "the operation is not defined for the type",
    [HUM_ERR_ARG] = "an argument is invalid",
    [HUM_ERR_TRUNCATE] = "the message is longer than the buffer",
    [HUM_ERR_UNMATCHED] = "a message was never received",
    [HUM_ERR_PEER] = "a rank has ended",
    [HUM_ERR_DEADLOCK] = "ranks wait for one another",
    [HUM_ERR_PROTOCOL] = "a peer broke the protocol",
    [HUM_ERR_STATE] = "the library is not initialized, or already finalized",
    [HUM_ERR_NO_MEM] = "out of memory",
    [HUM_ERR_SYSTEM] = "a system call failed",
    [HUM_ERR_UNSUPPORTED] = "not supported",
    [HUM_ERR_IN_STATUS] = "the statuses have the errors",
};

int hum_fail(HUM_Comm comm, int error, enum hum_function function, const char *format, ...)
{
    char detail[HUM_MAX_ERROR_STRING - 64];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
    snprintf(last, sizeof last, "rank %d: %s: %s", hum_job.rank, hum_function_names[function], detail);
    if (comm != NULL && comm->valid && !comm->handler->fatal) return error;
    fprintf(stderr, "humboldt: %s\n", last);
    hum_job_abort(1);
}

int HUM_Error_string(int code, char *text, int *length)
{
    const char *found = code >= 0 && code < HUM_ERR_LASTCODE ? texts[code] : "unknown error";
    *length = snprintf(text, HUM_MAX_ERROR_STRING, "%s", found);
    return HUM_SUCCESS;
}

int HUM_Error_class(int code, int *class_of)
{
    *class_of = code;
    return HUM_SUCCESS;
}

const char *HUM_Last_error(void) { return last; }
