/* The pairs of MINLOC and MAXLOC. */
#ifndef HUM_PAIRS_H
#define HUM_PAIRS_H

/* HUM_LONG: a board's processor has longs of 32 bits; messages use the hosts' 64,
 * unless the kernel sets 'long: 32'. */
#if __riscv_xlen == 32 && !defined HUM_SHORT_LONG
#define HUM_LONG_BITS 64
typedef long long hum_long_value;
typedef unsigned long long hum_unsigned_long_value;
#else
#define HUM_LONG_BITS (8 * __SIZEOF_LONG__)
typedef long hum_long_value;
typedef unsigned long hum_unsigned_long_value;
#endif

#define HUM_PAIR(name, type)                                                                                             \
    struct hum_pair_##name {                                                                                             \
        type value;                                                                                                      \
        int place;                                                                                                       \
    }
HUM_PAIR(float, float);
HUM_PAIR(double, double);
HUM_PAIR(long, hum_long_value);
HUM_PAIR(short, short);
HUM_PAIR(int, int);

#endif
