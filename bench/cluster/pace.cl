
/* Emulates a slower board: the last step of a task sleeps, so that a task takes at least `us`
 * microseconds. The CPU driver's thread sleeps while the processor is free; drivers of devices
 * other than CPUs refuse this kernel. */
kernel void pace(uint us) {
  long rest[2] = {us / 1000000, (long)(us % 1000000) * 1000};
  long status;
  do {
#if defined(__x86_64__)
    __asm__ volatile("syscall" : "=a"(status) : "a"(35L), "D"(rest), "S"(rest) : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long number __asm__("x8") = 101;
    register long wanted __asm__("x0") = (long)rest;
    register long left __asm__("x1") = (long)rest;
    __asm__ volatile("svc 0" : "+r"(wanted) : "r"(number), "r"(left) : "memory");
    status = wanted;
#else
#error pace.cl has no system call to sleep on this processor
#endif
  } while (status == -4); /* interrupted by a signal: `rest` holds the remaining time */
}
