
/* A slower board: the task's last step sleeps, so that a task takes no less than so many microseconds. It is the CPU
 * driver's thread that sleeps and the processor is free meanwhile; a driver of a device that is no CPU refuses this. */
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
#error pace.cl knows no way to sleep on this processor
#endif
  } while (status == -4); /* a signal came: the rest of the time is in `rest` */
}
