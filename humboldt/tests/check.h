/* Common parts of the tests: a check that prints its line, and a count of the successful checks. */
#ifndef HUM_CHECK_H
#define HUM_CHECK_H

#include <stdio.h>
#include <stdlib.h>

static int check_count;

#define CHECK(what)                                                                                                      \
    do {                                                                                                                 \
        if (!(what)) {                                                                                                   \
            fprintf(stderr, "%s:%d: not so: %s (%s)\n", __FILE__, __LINE__, #what, HUM_Last_error());                     \
            exit(3);                                                                                                     \
        }                                                                                                                \
        check_count++;                                                                                                   \
    } while (0)

#endif
