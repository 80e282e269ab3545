/* The envelope's fields as C. The definition is envelope.def. */
#ifndef HUM_ENVELOPE_H
#define HUM_ENVELOPE_H

#include <stdint.h>

#define FIELD(name, low, width) HUM_##name##_LOW = (low), HUM_##name##_WIDTH = (width),
#define PACKET(name, value)
#define FLAGBIT(name, bit)
#define CODE(name, value)
#define FAULT(name, value)
#define LIMIT(name, value)
enum {
#include "envelope.def"
};
#undef FIELD
#undef PACKET
#undef FLAGBIT
#undef CODE
#undef FAULT
#undef LIMIT

#define FIELD(name, low, width)
#define PACKET(name, value) HUM_PACKET_##name = (value),
#define FLAGBIT(name, bit) HUM_FLAG_##name = 1 << (bit),
#define CODE(name, value) HUM_CODE_##name = (value),
#define FAULT(name, value) HUM_FAULT_##name = (value),
#define LIMIT(name, value) HUM_LIMIT_##name = (value),
enum {
#include "envelope.def"
};
#undef FIELD
#undef PACKET
#undef FLAGBIT
#undef CODE
#undef FAULT
#undef LIMIT

/* The value of an envelope's field. */
#define HUM_FIELD(word, name) (((uint64_t)(word) >> HUM_##name##_LOW) & ((UINT64_C(1) << HUM_##name##_WIDTH) - 1))

/* A value shifted into a field; bits beyond the field are cut off. */
#define HUM_PUT(value, name) (((uint64_t)(value) & ((UINT64_C(1) << HUM_##name##_WIDTH) - 1)) << HUM_##name##_LOW)

/* Tags occupy two fields. */
enum { HUM_TAG_BITS = HUM_TAG_WIDTH + HUM_TAG_HIGH_WIDTH };

static inline int hum_tag(uint64_t word) { return (int)(HUM_FIELD(word, TAG) | HUM_FIELD(word, TAG_HIGH) << HUM_TAG_WIDTH); }

/* A tag shifted into its fields, as HUM_PUT. */
static inline uint64_t hum_put_tag(int tag) { return HUM_PUT(tag, TAG) | HUM_PUT((uint32_t)tag >> HUM_TAG_WIDTH, TAG_HIGH); }

/* Whether SIZE bytes of a message follow the envelope of a packet to or from fabric. */
static inline int hum_carries(uint64_t type)
{
    return type == HUM_PACKET_DATA || type == HUM_PACKET_EAGER || type == HUM_PACKET_STREAM;
}

/* Both words of a packet between software ranks. */
struct hum_head {
    uint64_t word, more;
};

static inline struct hum_head hum_head(int type, int source, int destination, uint64_t size, int tag, unsigned context,
                                       unsigned code)
{
    struct hum_head head = {
        .word = HUM_PUT(destination, DEST) | HUM_PUT(source, SRC) | HUM_PUT(type, TYPE) | HUM_PUT(size, SIZE) |
                hum_put_tag(tag) | HUM_PUT(code, DTYPE) | HUM_PUT(HUM_FLAG_EXTENDED, FLAG),
        .more = (uint32_t)tag | (uint64_t)(context & 0xffff) << 32 | (size >> HUM_SIZE_WIDTH & 0xffff) << 48,
    };
    return head;
}

/* The largest message: 40 bits of size. */
#define HUM_MESSAGE_MAX ((UINT64_C(1) << 40) - 1)

static inline uint64_t hum_head_size(struct hum_head head)
{
    return HUM_FIELD(head.word, SIZE) | (head.more >> 48) << HUM_SIZE_WIDTH;
}

static inline int hum_head_tag(struct hum_head head) { return (int32_t)(uint32_t)head.more; }

static inline unsigned hum_head_context(struct hum_head head) { return head.more >> 32 & 0xffff; }

#endif
