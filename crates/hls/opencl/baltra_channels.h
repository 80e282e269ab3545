/*
 * Channels between kernels, with Intel's syntax and the older one of Altera. A channel is declared
 * as a variable that is never defined: its type is that of an element, its section has the depth.
 * An element is transferred in words; passes/channels.rs makes one operation of these calls.
 */
#ifndef BALTRA_CHANNELS
#define BALTRA_CHANNELS
#pragma clang diagnostic ignored "-Wignored-pragmas"

#define BALTRA_CHANNEL_CALL __attribute__((nomerge, convergent))
#define BALTRA_CHANNEL_WORDS(c) ((sizeof(c) + 7) / 8)
#define BALTRA_TEXT(x) #x
#define BALTRA_DEPTH(n) section("baltra_channel " BALTRA_TEXT(n))

#define channel extern __constant
#define depth(n) BALTRA_DEPTH(n)

/* The channel, and the bytes of its elements. */
void BALTRA_CHANNEL_CALL __baltra_channel_read(__constant const void *c, uint bytes);
bool BALTRA_CHANNEL_CALL __baltra_channel_try_read(__constant const void *c, uint bytes);
void BALTRA_CHANNEL_CALL __baltra_channel_write(__constant const void *c, uint bytes);
bool BALTRA_CHANNEL_CALL __baltra_channel_try_write(__constant const void *c, uint bytes);
/* A word of the element that is read, or that will be written. */
ulong BALTRA_CHANNEL_CALL __baltra_channel_get(__constant const void *c, uint word);
void BALTRA_CHANNEL_CALL __baltra_channel_put(__constant const void *c, uint word, ulong value);

/* The type of an element is that of the channel without its address space. */
#define BALTRA_ELEMENT(c, name)                          \
    union {                                              \
        __typeof__((0, c)) value;                        \
        ulong words[BALTRA_CHANNEL_WORDS(c)];            \
    } name
#define BALTRA_GET(c, name)                                                           \
    _Pragma("unroll") for (uint baltra_w = 0; baltra_w < BALTRA_CHANNEL_WORDS(c); baltra_w++) \
        name.words[baltra_w] = __baltra_channel_get(&(c), baltra_w)
#define BALTRA_PUT(c, name)                                                           \
    _Pragma("unroll") for (uint baltra_w = 0; baltra_w < BALTRA_CHANNEL_WORDS(c); baltra_w++) \
        __baltra_channel_put(&(c), baltra_w, name.words[baltra_w])

#define read_channel_intel(c)                     \
    (__extension__({                              \
        BALTRA_ELEMENT(c, baltra_e);              \
        __baltra_channel_read(&(c), sizeof(c));   \
        BALTRA_GET(c, baltra_e);                  \
        baltra_e.value;                           \
    }))
#define read_channel_nb_intel(c, valid)                               \
    (__extension__({                                                  \
        BALTRA_ELEMENT(c, baltra_e);                                  \
        bool baltra_there = __baltra_channel_try_read(&(c), sizeof(c)); \
        BALTRA_GET(c, baltra_e);                                      \
        *(valid) = baltra_there;                                      \
        baltra_e.value;                                               \
    }))
#define write_channel_intel(c, element)           \
    (__extension__({                              \
        BALTRA_ELEMENT(c, baltra_e);              \
        baltra_e.value = (element);               \
        BALTRA_PUT(c, baltra_e);                  \
        __baltra_channel_write(&(c), sizeof(c));  \
    }))
#define write_channel_nb_intel(c, element)         \
    (__extension__({                               \
        BALTRA_ELEMENT(c, baltra_e);               \
        baltra_e.value = (element);                \
        BALTRA_PUT(c, baltra_e);                   \
        __baltra_channel_try_write(&(c), sizeof(c)); \
    }))
#define read_channel_altera read_channel_intel
#define read_channel_nb_altera read_channel_nb_intel
#define write_channel_altera write_channel_intel
#define write_channel_nb_altera write_channel_nb_intel
#endif
