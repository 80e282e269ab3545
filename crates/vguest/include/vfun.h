/* Calls functions of the host from a guest.
 *
 *   vfun_door door;
 *   vfun_function fibonacci;
 *   uint64_t value;
 *   if (vfun_open(NULL, &door) || vfun_request(door, "fibonacci", VFUN_ANY, &fibonacci, NULL) ||
 *       vfun_activate(fibonacci) || vfun_set(fibonacci, "n=93", NULL, 0) ||
 *       vfun_get(fibonacci, &value, sizeof value, NULL, VFUN_FOREVER))
 *     errx(1, "%s", vfun_reason(door));
 *   vfun_release(fibonacci);
 *   vfun_close(door);
 *
 * A door may be used by one thread at a time; several threads open several doors, each with its own
 * part of the shared region. Link with -lvfun -lpthread, dynamically or statically. */
#ifndef VFUN_H
#define VFUN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Results of calls. 1 to 10 are the host's refusals. */
typedef enum vfun_error {
  VFUN_OK = 0,
  VFUN_NOT_ALLOWED = 1,   /* the function does not exist or is not allowed for this VM */
  VFUN_NO_HARDWARE = 2,   /* no accelerator is available; request VFUN_SOFTWARE */
  VFUN_NO_SOFTWARE = 3,   /* the function has no software implementation */
  VFUN_QUOTA = 4,         /* a limit of this VM is reached: functions, calls in flight, memory */
  VFUN_BAD_ARGUMENTS = 5, /* arguments or body do not fit the function */
  VFUN_NOT_ACTIVE = 6,    /* the function was not activated, or was released */
  VFUN_FAILED = 7,        /* the function failed; vfun_reason has its text */
  VFUN_TIMED_OUT = 8,     /* the call exceeded this VM's time limit: open again */
  VFUN_PROTOCOL = 9,      /* the host closed the connection: open again */
  VFUN_UNAVAILABLE = 10,  /* the host is temporarily unable */
  VFUN_MISUSE = 100,      /* invalid use of this interface */
  VFUN_DEVICE = 101,      /* the region does not exist, or access is denied */
  VFUN_FULL = 102,        /* all parts of the region are in use */
  VFUN_GONE = 103,        /* the host does not answer */
  VFUN_LOST = 104,        /* the host restarted: open again */
  VFUN_NOT_YET = 105,     /* the wait timed out; get again */
  VFUN_TOO_SMALL = 106,   /* the result exceeds the buffer; get again with a larger one */
  VFUN_BROKEN = 107       /* the host's answer is malformed */
} vfun_error;

/* Implementations, as requested and as received. */
typedef enum vfun_want { VFUN_ANY = 0, VFUN_HARDWARE = 1, VFUN_SOFTWARE = 2 } vfun_want;

/* State of a function's call. */
typedef enum vfun_state { VFUN_WAIT = 0, VFUN_BUSY = 1, VFUN_DONE = 2 } vfun_state;

typedef struct vfun_door { struct vfun_door_inside *inside; } vfun_door;
typedef struct vfun_function { struct vfun_door_inside *inside; uint32_t number; } vfun_function;

#define VFUN_FOREVER ((int64_t)-1)

/* Opens the region: `device` is a PCI device's directory in sysfs, "unix:PATH" for the daemon's
 * socket outside a VM, "serial:PATH" for a virtio-serial port, or "tcp:ADDRESS:PORT". NULL: the
 * first that exists of $VFUN_DEVICE, an ivshmem device, a free port named baltra.vfun…, and
 * $VFUN_TCP. Blocks up to ten seconds if the host is busy. Call vfun_close after success. */
vfun_error vfun_open(const char *device, vfun_door *door);

/* Closes the door and releases its functions. */
void vfun_close(vfun_door door);

/* Text of the last error of this door; with a door that was not opened, of this thread's last
 * vfun_open. Valid until the next call. */
const char *vfun_reason(vfun_door door);

/* Requests a function. `got`, unless it is NULL, receives the implementation, VFUN_HARDWARE or
 * VFUN_SOFTWARE. Release the function with vfun_release; closing the door releases it, too. */
vfun_error vfun_request(vfun_door door, const char *name, vfun_want want, vfun_function *function,
                        vfun_want *got);

/* Loads the function. Blocks until it is loaded, which may take seconds if a compiler runs. */
vfun_error vfun_activate(vfun_function function);

/* Starts a call. `arguments` has the form of a URL's query, "n=93" (NULL: none); `body` holds the
 * inputs of the request's body, raw. Both are copied before it returns. Does not wait for the call. */
vfun_error vfun_set(vfun_function function, const char *arguments, const void *body, size_t bytes);

/* Waits for the call's end, at most `patience_ms`, and writes the outputs, raw, one after the
 * other. `bytes`, unless it is NULL, receives their size, with VFUN_TOO_SMALL as well. */
vfun_error vfun_get(vfun_function function, void *to, size_t room, size_t *bytes,
                    int64_t patience_ms);

/* Drops the call and its result; then the state is VFUN_WAIT. */
vfun_error vfun_rst(vfun_function function);

/* Releases the function. */
vfun_error vfun_release(vfun_function function);

/* State of the function's call. Never blocks. */
vfun_state vfun_status(vfun_function function);

#ifdef __cplusplus
}
#endif
#endif
