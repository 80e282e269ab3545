/* Helpers of the example programs for plain OpenCL: selecting a device, checking calls, timing.
 *
 * They work with every implementation behind the loader. All functions end the process with
 * EXIT_OPENCL or EXIT_FILE and a message on stderr if they fail. */
#ifndef CLU_H
#define CLU_H

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum {
  EXIT_WRONG = 1,  /* the program ran, but the result is wrong */
  EXIT_USAGE = 2,  /* the command line is invalid */
  EXIT_OPENCL = 3, /* an OpenCL call failed */
  EXIT_FILE = 4,   /* a file could not be read or written, or memory ran out */
};

struct clu {
  cl_platform_id platform;
  cl_device_id device;
  cl_context context;
  char platform_name[256];
  char device_name[256];
};

/* Ends the process when code is not CL_SUCCESS; call is the text of the call that returned it. */
void clu_must(cl_int code, const char *call);
#define CLU(call) clu_must((call), #call)

/* Selects the first device whose name or platform's name contains wanted (NULL: the first device of
 * all) and creates a context on it. */
void clu_open(struct clu *c, const char *wanted);
void clu_close(struct clu *c);

cl_command_queue clu_queue(const struct clu *c, cl_command_queue_properties properties);
cl_mem clu_buffer(const struct clu *c, cl_mem_flags flags, size_t bytes);
/* Builds source; on failure prints the compiler's log. */
cl_program clu_program(const struct clu *c, const char *source, const char *options);
cl_kernel clu_kernel(cl_program program, const char *name);
void clu_arg(cl_kernel kernel, cl_uint index, size_t size, const void *value);

/* Milliseconds that the device spent on a completed command of a profiling queue. */
double clu_event_ms(cl_event event);

/* Monotonic time in milliseconds. */
double clu_now_ms(void);
void clu_sleep_ms(double ms);

void *clu_alloc(size_t bytes);
uint64_t clu_checksum(const void *data, size_t bytes); /* FNV-1a, 64 bits */

/* Samples in one unit, in a growing array. */
struct samples {
  double *value;
  size_t count, capacity;
};
void samples_add(struct samples *s, double value);
/* p in 0..100, linear between ranks; sorts the samples. */
double samples_percentile(struct samples *s, double p);
/* {"n":…,"min":…,"mean":…,"median":…,"p95":…,"p99":…,"max":…} */
void samples_json(FILE *to, struct samples *s);
/* A line of text for humans. */
void samples_print(FILE *to, const char *label, struct samples *s, const char *unit);
void samples_free(struct samples *s);

/* Writes text as a JSON string, including the quotes. */
void json_string(FILE *to, const char *text);

/* "64", "4K", "16M", "2G" in bytes; 0 if text is not such a number. */
size_t parse_bytes(const char *text);
/* A decimal number in low..high; otherwise ends the process with EXIT_USAGE and the option's
 * name. */
long parse_long(const char *option, const char *text, long low, long high);

#endif
