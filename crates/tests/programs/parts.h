/* Parts of a program that compares drivers. Some drivers crash at queries that others reject, so
   each part is a separate process that has not used OpenCL before. Its lines begin with its name,
   and its last one is "NAME: ended". */
#ifndef PARTS_H
#define PARTS_H

#include "clu.h"
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

typedef void part_run(const char *name, const void *argument);

static inline void part(const char *name, part_run *run, const void *argument) {
  fflush(stdout);
  pid_t child = fork();
  if (child < 0) exit(EXIT_FILE);
  if (child) {
    waitpid(child, NULL, 0);
    return;
  }
  /* The output before a crash is compared. */
  setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
  run(name, argument);
  printf("%s: ended\n", name);
  fflush(stdout);
  _exit(0);
}

#endif
