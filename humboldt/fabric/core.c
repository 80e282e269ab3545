/* Start, console and end of a program on a kernel's processor. */
#include "port.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* Arguments and constants from the logical file; a negative count: no arguments. */
extern const char *const hum_fabric_arguments[];
extern const int hum_fabric_argument_count;
extern char *hum_fabric_environment[];
extern char **environ;
int main(int argc, char **argv);

static int put_character(char c, FILE *file)
{
    (void)file;
    port_text((unsigned char)c);
    return (unsigned char)c;
}
static FILE console = FDEV_SETUP_STREAM(put_character, NULL, NULL, _FDEV_SETUP_WRITE);
FILE *const stdin = &console;
FILE *const stdout = &console;
FILE *const stderr = &console;

/* Some programs query the page size. */
long sysconf(int name) { return name == _SC_PAGESIZE ? 4096 : -1; }

/* There are no files. A program that uses files on other ranks compiles, and opening a file returns
 * an error. */
static int none(int why)
{
    errno = why;
    return -1;
}
int open(const char *path, int flags, ...) { return (void)path, (void)flags, none(ENOSYS); }
int close(int file) { return (void)file, none(EBADF); }
ssize_t read(int file, void *data, size_t bytes) { return (void)file, (void)data, (void)bytes, none(EBADF); }
ssize_t write(int file, const void *data, size_t bytes) { return (void)file, (void)data, (void)bytes, none(EBADF); }
off_t lseek(int file, off_t at, int whence) { return (void)file, (void)at, (void)whence, none(EBADF); }

_Noreturn void _exit(int code)
{
    port_end((unsigned)code);
}

void hum_fabric_main(void)
{
    static char numbers[2][8];
    char *argv[34] = {"kernel"};
    int argc = 1;
    environ = hum_fabric_environment;
    if (hum_fabric_argument_count >= 0) {
        for (; argc <= hum_fabric_argument_count && argc < 33; argc++) argv[argc] = (char *)(uintptr_t)hum_fabric_arguments[argc - 1];
    } else {
        snprintf(numbers[0], sizeof numbers[0], "%d", port_ranks());
        snprintf(numbers[1], sizeof numbers[1], "%d", port_rank());
        argv[argc++] = numbers[0];
        argv[argc++] = numbers[1];
    }
    exit(main(argc, argv));
}
