/*
 * Start and end of a synthesized kernel's program, numbers from arguments and constants, and the
 * implementation of printf (print.h). The macros come from the
 * cluster files: HUM_RANKS, HUM_FIRST, HUM_COPIES, HUM_ARGC, HUM_ARGV (texts, each with a comma),
 * HUM_ENVIRONMENT (pairs of texts).
 */
#include "port.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv);

/* Replaced by the kernel's number in arguments; copies of one kernel differ only in it. */
static char own[] = "?";

void exit(int code) { port_end((unsigned)code); }
void _exit(int code) { port_end((unsigned)code); }
void abort(void) { port_end(134); }

/* The entry point of the synthesis; its return value ends the kernel. */
int hum_main(void)
{
    char *argv[] = {"kernel", HUM_ARGV NULL};
    return main(HUM_ARGC, argv) & 0xff;
}

int atoi(const char *text) { return text == own ? port_rank() : (int)strtol(text, NULL, 10); }

char *getenv(const char *name)
{
    static const char *const pairs[][2] = {HUM_ENVIRONMENT{"", ""}};
#pragma clang loop unroll(full)
    for (size_t i = 0; i + 1 < sizeof pairs / sizeof pairs[0]; i++)
        if (strcmp(pairs[i][0], name) == 0) return (char *)(uintptr_t)pairs[i][1];
    return NULL;
}

/* ---- text ---- */

#define HUM_TEXT const char
#include "print.h"

/* Every stream is the console. */
int fputs(const char *text, FILE *file)
{
    (void)file;
    hum_print_text(text);
    return 0;
}

int puts(const char *text)
{
    hum_print_text(text);
    port_text('\n');
    return 0;
}

int fputc(int c, FILE *file)
{
    (void)file;
    port_text((unsigned char)c);
    return (unsigned char)c;
}
