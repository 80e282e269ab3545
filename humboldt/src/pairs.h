/* The pairs of MINLOC and MAXLOC. */
#ifndef HUM_PAIRS_H
#define HUM_PAIRS_H

#define HUM_PAIR(name, type)                                                                                             \
    struct hum_pair_##name {                                                                                             \
        type value;                                                                                                      \
        int place;                                                                                                       \
    }
HUM_PAIR(float, float);
HUM_PAIR(double, double);
HUM_PAIR(long, long);
HUM_PAIR(short, short);
HUM_PAIR(int, int);

#endif
