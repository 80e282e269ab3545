/* The functions of printf. Included after baltra_builtins.h if the program contains 'printf'. */
typedef ulong uint64_t;
typedef uint uint32_t;
typedef ushort uint16_t;
typedef long int64_t;
#define HUM_TEXT __constant const char
static inline void port_text(uchar c) { __baltra_text(c); }
#include "baltra_print_items.h"
