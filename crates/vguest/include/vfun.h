/* The host's functions, called from a guest as if they were local.
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
 * A door is one thread's at a time; several threads open several, each with a part of the shared
 * region to itself. Link with -lvfun -lpthread, statically if you like. */
#ifndef VFUN_H
#define VFUN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a call returns. 1 to 10 are the host's nack. */
typedef enum vfun_error {
  VFUN_OK = 0,
  VFUN_NOT_ALLOWED = 1,   /* this VM has no function of that name */
  VFUN_NO_HARDWARE = 2,   /* no accelerator for it is free; ask for VFUN_SOFTWARE */
  VFUN_NO_SOFTWARE = 3,   /* the function has no software implementation */
  VFUN_QUOTA = 4,         /* more than this VM may have: functions, calls in flight, memory */
  VFUN_BAD_ARGUMENTS = 5, /* arguments or body do not fit the function */
  VFUN_NOT_ACTIVE = 6,    /* the function was not activated, or was released */
  VFUN_FAILED = 7,        /* the function failed, with its own words */
  VFUN_TIMED_OUT = 8,     /* the call took longer than this VM's calls may: open again */
  VFUN_PROTOCOL = 9,      /* the host closed the connection: open again */
  VFUN_UNAVAILABLE = 10,  /* the host cannot now */
  VFUN_MISUSE = 100,      /* not as this header says */
  VFUN_DEVICE = 101,      /* there is no region, or no right to it */
  VFUN_FULL = 102,        /* every part of the region is another application's */
  VFUN_GONE = 103,        /* the host does not answer */
  VFUN_LOST = 104,        /* the host started anew and forgot this door: open again */
  VFUN_NOT_YET = 105,     /* the patience was over first; get again */
  VFUN_TOO_SMALL = 106,   /* the answer is longer than the room; get again with more */
  VFUN_BROKEN = 107       /* the host's answer makes no sense */
} vfun_error;

/* Which implementation is wanted, and which was got. */
typedef enum vfun_want { VFUN_ANY = 0, VFUN_HARDWARE = 1, VFUN_SOFTWARE = 2 } vfun_want;

/* How a function's call stands. */
typedef enum vfun_state { VFUN_WAIT = 0, VFUN_BUSY = 1, VFUN_DONE = 2 } vfun_state;

typedef struct vfun_door { struct vfun_door_inside *inside; } vfun_door;
typedef struct vfun_function { struct vfun_door_inside *inside; uint32_t number; } vfun_function;

#define VFUN_FOREVER ((int64_t)-1)

/* Opens the region: `device` is a PCI device's directory in sysfs, "unix:PATH" for the daemon's
 * socket outside of a VM, "serial:PATH" for a virtio-serial port, "tcp:ADDRESS:PORT", or NULL:
 * $VFUN_DEVICE, else the first ivshmem device, else a free port named baltra.vfun…, else $VFUN_TCP. Blocks up to ten
 * seconds where the host is busy. The door is to be closed; one that was not opened need not be. */
vfun_error vfun_open(const char *device, vfun_door *door);

/* Gives everything back. The door's functions end with it. */
void vfun_close(vfun_door door);

/* Words for the last error of this door; with a door that was not opened, for this thread's last
 * vfun_open. Holds until the next call. */
const char *vfun_reason(vfun_door door);

/* Negotiates: may this function be had, and how? `got` may be NULL; else it is told VFUN_HARDWARE
 * or VFUN_SOFTWARE. The function is to be released, or ends with its door. */
vfun_error vfun_request(vfun_door door, const char *name, vfun_want want, vfun_function *function,
                        vfun_want *got);

/* Has the function loaded. Blocks meanwhile, with a compiler at work for seconds. */
vfun_error vfun_activate(vfun_function function);

/* Starts a call. `arguments` is as an URL's query, "n=93" (NULL: none); `body` are the inputs that
 * come in the body, raw. Both are copied: they are the caller's again. Does not wait for the call. */
vfun_error vfun_set(vfun_function function, const char *arguments, const void *body, size_t bytes);

/* Waits for the call's end, at most `patience_ms`, and writes the outputs, raw, one after the
 * other. `bytes` may be NULL; else it is told how many there are, with VFUN_TOO_SMALL as well. */
vfun_error vfun_get(vfun_function function, void *to, size_t room, size_t *bytes,
                    int64_t patience_ms);

/* Forgets the call and what came of it; then the state is VFUN_WAIT. */
vfun_error vfun_rst(vfun_function function);

/* Gives the function back; the host forgets it. */
vfun_error vfun_release(vfun_function function);

/* How the call stands. Never blocks. */
vfun_state vfun_status(vfun_function function);

#ifdef __cplusplus
}
#endif
#endif
