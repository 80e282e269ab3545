/* shuffle and shuffle2. Included after baltra_builtins.h if the program may call one. */

/* An element by a mask's element, of which only the low bits count. */
#define BALTRA_PICK(I) a[mask[I] & (M - 1)]
#define BALTRA_PICK_OF_TWO(I) (mask[I] & M ? b[mask[I] & (M - 1)] : a[mask[I] & (M - 1)])
#define BALTRA_PICKS_2(P) P(0), P(1)
#define BALTRA_PICKS_4(P) P(0), P(1), P(2), P(3)
#define BALTRA_PICKS_8(P) BALTRA_PICKS_4(P), P(4), P(5), P(6), P(7)
#define BALTRA_PICKS_16(P) BALTRA_PICKS_8(P), P(8), P(9), P(10), P(11), P(12), P(13), P(14), P(15)
#define BALTRA_SHUFFLE(T, U, COUNT, N)                                                             \
    BALTRA_FUNCTION T##N shuffle(T##COUNT a, U##N mask)                                            \
    {                                                                                              \
        const uint M = COUNT;                                                                      \
        return (T##N)(BALTRA_PICKS_##N(BALTRA_PICK));                                              \
    }                                                                                              \
    BALTRA_FUNCTION T##N shuffle2(T##COUNT a, T##COUNT b, U##N mask)                               \
    {                                                                                              \
        const uint M = COUNT;                                                                      \
        return (T##N)(BALTRA_PICKS_##N(BALTRA_PICK_OF_TWO));                                       \
    }
#define BALTRA_SHUFFLE_FROM(T, U, M)                                                               \
    BALTRA_SHUFFLE(T, U, M, 2) BALTRA_SHUFFLE(T, U, M, 4) BALTRA_SHUFFLE(T, U, M, 8) BALTRA_SHUFFLE(T, U, M, 16)
#define BALTRA_SHUFFLES(T, U)                                                                      \
    BALTRA_SHUFFLE_FROM(T, U, 2) BALTRA_SHUFFLE_FROM(T, U, 4) BALTRA_SHUFFLE_FROM(T, U, 8) BALTRA_SHUFFLE_FROM(T, U, 16)
BALTRA_SHUFFLES(char, uchar) BALTRA_SHUFFLES(uchar, uchar) BALTRA_SHUFFLES(short, ushort) BALTRA_SHUFFLES(ushort, ushort)
BALTRA_SHUFFLES(int, uint) BALTRA_SHUFFLES(uint, uint) BALTRA_SHUFFLES(long, ulong) BALTRA_SHUFFLES(ulong, ulong)
BALTRA_SHUFFLES(float, uint) BALTRA_SHUFFLES(double, ulong)
