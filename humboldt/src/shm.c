/*
 * Packets between ranks of one node: one ring in the segment for each ordered pair, written by one
 * rank, read by the other.
 *
 * A ring consists of `slots` of 64 bytes, a cache line each, and a `bulk` area. A packet takes one
 * slot. Up to 40 bytes (words and payload) are stored in the slot; larger payloads in one piece in
 * the bulk area. The slot's sequence number is written last: the reader polls the cache line that
 * brings the packet, so a small message costs the transfer of one cache line. The reader publishes
 * its position rarely: after a quarter of the ring, and when it has no other work.
 *
 * The reader trusts no length: a slot's fields are copied, then checked against the ring's sizes.
 */
#include "internal.h"

#include <string.h>

enum { SLOT_BYTES = 64, INLINE_BYTES = 40, RINGS_BYTES = 256 << 20, EAGER_BYTES = 32 << 10, LINE = 64 };

struct slot {
    _Atomic uint32_t sequence; /* 1 + the packet's number, once it is complete */
    uint32_t bytes;            /* payload */
    struct hum_head head;
    uint8_t data[INLINE_BYTES];
};
_Static_assert(sizeof(struct slot) == SLOT_BYTES, "a slot is a cache line");

/* The reader's position: everything before it was read. */
struct ring {
    _Atomic uint64_t read, bulk_read;
    uint8_t pad[2 * LINE - 16];
};

struct sender {
    struct ring *ring;
    struct slot *slots;
    uint8_t *bulk;
    uint64_t next, bulk_next;
    uint64_t read, bulk_read; /* last values read */
};

struct reader {
    struct ring *ring;
    struct slot *slots;
    const uint8_t *bulk;
    uint64_t next, bulk_next, published;
    int rank;
};

static size_t slots, bulk_bytes;
static struct sender senders[HUM_RANKS_MAX]; /* by rank */
static struct reader readers[HUM_RANKS_MAX]; /* by local index, without this rank */
static int reader_of[HUM_RANKS_MAX];         /* by rank */
static int reader_count;

/* The bulk area, a power of two: 256 KB for a few ranks, 4 KB for 256,
 * so that all rings stay within a budget. */
static size_t bulk_of(int locals)
{
    size_t bytes = 256 << 10;
    while (bytes > 4096 && bytes * (size_t)locals * (size_t)locals > RINGS_BYTES) bytes /= 2;
    return bytes;
}

/* One slot for each 512 bytes of bulk. */
static size_t ring_bytes(int locals) { return sizeof(struct ring) + bulk_of(locals) + bulk_of(locals) / 512 * SLOT_BYTES; }

size_t hum_shm_bytes(int locals) { return ring_bytes(locals) * (size_t)locals * (size_t)locals; }

size_t hum_shm_eager_max(int locals) { return bulk_of(locals) / 4 < EAGER_BYTES ? bulk_of(locals) / 4 : EAGER_BYTES; }

size_t hum_shm_fragment_max(void) { return bulk_bytes / 8; }

void hum_shm_start(void)
{
    size_t bytes = ring_bytes(hum_job.locals);
    bulk_bytes = bulk_of(hum_job.locals);
    slots = bulk_bytes / 512;
    uint8_t *rings = (uint8_t *)hum_job.page + sizeof(struct hum_page);
    for (int i = 0; i < hum_job.locals; i++) {
        int rank = hum_job.local_ranks[i];
        if (rank == hum_job.rank) continue;
        size_t there = ((size_t)hum_job.local * (size_t)hum_job.locals + (size_t)i) * bytes;
        size_t back = ((size_t)i * (size_t)hum_job.locals + (size_t)hum_job.local) * bytes;
        struct ring *out = (struct ring *)(rings + there), *in = (struct ring *)(rings + back);
        senders[rank] = (struct sender){.ring = out, .slots = (struct slot *)(out + 1), .bulk = (uint8_t *)(out + 1) + slots * SLOT_BYTES};
        reader_of[rank] = reader_count;
        readers[reader_count++] = (struct reader){
            .ring = in, .slots = (struct slot *)(in + 1), .bulk = (const uint8_t *)(in + 1) + slots * SLOT_BYTES, .rank = rank};
    }
}

/* The begin of a piece of the bulk area at or after `at`, which does not wrap.
 * Both sides compute the same. */
static inline uint64_t bulk_place(uint64_t at, size_t bytes)
{
    size_t offset = at & (bulk_bytes - 1);
    return offset + bytes > bulk_bytes ? at + (bulk_bytes - offset) : at;
}

static inline uint64_t bulk_after(uint64_t place, size_t bytes) { return place + (bytes + LINE - 1) / LINE * LINE; }

/*
 * A copy between the caches of two processors. memcpy's `rep movsb` fetches the other's lines one
 * after another; vectors with prefetch keep several in flight.
 */
typedef uint8_t vector __attribute__((vector_size(16), aligned(1), may_alias));

void hum_copy(void *to, const void *from, size_t bytes)
{
    enum { BLOCK = 64, AHEAD = 512 };
    if (bytes < 4 * BLOCK) {
        if (bytes > 0) memcpy(to, from, bytes);
        return;
    }
    uint8_t *t = to;
    const uint8_t *f = from;
    for (; bytes >= BLOCK; bytes -= BLOCK, t += BLOCK, f += BLOCK) {
        __builtin_prefetch(f + AHEAD, 0);
        __builtin_prefetch(t + AHEAD, 1);
        vector a = *(const vector *)f, b = *(const vector *)(f + 16), c = *(const vector *)(f + 32), d = *(const vector *)(f + 48);
        *(vector *)t = a;
        *(vector *)(t + 16) = b;
        *(vector *)(t + 32) = c;
        *(vector *)(t + 48) = d;
    }
    memcpy(t, f, bytes);
}

bool hum_shm_push(int rank, struct hum_head head, const struct hum_words *words, int count, const void *data, size_t bytes)
{
    struct sender *to = &senders[rank];
    size_t in_front = (size_t)count * sizeof(uint64_t);
    bool small = in_front + bytes <= INLINE_BYTES;
    uint64_t place = small ? 0 : bulk_place(to->bulk_next, bytes);
    if (hum_unlikely(to->next - to->read >= slots || (!small && bulk_after(place, bytes) - to->bulk_read > bulk_bytes))) {
        to->read = atomic_load_explicit(&to->ring->read, memory_order_acquire);
        to->bulk_read = atomic_load_explicit(&to->ring->bulk_read, memory_order_relaxed);
        if (to->next - to->read >= slots || (!small && bulk_after(place, bytes) - to->bulk_read > bulk_bytes)) return false;
    }
    struct slot *slot = &to->slots[to->next & (slots - 1)];
    slot->bytes = (uint32_t)bytes;
    slot->head = head;
    if (count > 0) memcpy(slot->data, words->word, in_front);
    if (small) {
        if (bytes > 0) memcpy(slot->data + in_front, data, bytes);
    } else {
        hum_copy(to->bulk + (place & (bulk_bytes - 1)), data, bytes);
        to->bulk_next = bulk_after(place, bytes);
    }
    to->next++;
    atomic_store_explicit(&slot->sequence, (uint32_t)to->next, memory_order_release); /* SYNC POINT: packet */
    hum_wake(rank);
    return true;
}

static void publish(struct reader *from)
{
    atomic_store_explicit(&from->ring->bulk_read, from->bulk_next, memory_order_relaxed);
    atomic_store_explicit(&from->ring->read, from->next, memory_order_release); /* SYNC POINT: room */
    from->published = from->next;
    hum_wake(from->rank);
}

static inline void consumed(struct reader *from, size_t in_front, size_t bytes)
{
    if (in_front + bytes > INLINE_BYTES) from->bulk_next = bulk_after(bulk_place(from->bulk_next, bytes), bytes);
    from->next++;
    if (from->next - from->published >= slots / 4 ||
        from->bulk_next - atomic_load_explicit(&from->ring->bulk_read, memory_order_relaxed) >= bulk_bytes / 4)
        publish(from);
}

static inline struct slot *ready(struct reader *from)
{
    struct slot *slot = &from->slots[from->next & (slots - 1)];
    bool there = atomic_load_explicit(&slot->sequence, memory_order_acquire) == (uint32_t)(from->next + 1); /* SYNC POINT: packet */
    return there ? slot : NULL;
}

void hum_shm_release(void)
{
    for (int i = 0; i < reader_count; i++)
        if (readers[i].next != readers[i].published) publish(&readers[i]);
}

/* Takes a packet at the head of the ring, if the engine has space. */
static bool take(struct reader *from, const struct slot *slot)
{
    struct hum_head head = slot->head;
    size_t bytes = slot->bytes;
    int type = (int)HUM_FIELD(head.word, TYPE), count = hum_words_of(type);
    size_t in_front = count > 0 ? (size_t)count * sizeof(uint64_t) : 0;
    size_t most = type == HUM_PACKET_EAGER || type == HUM_PACKET_DATA ? bulk_bytes / 2 : type == HUM_PACKET_WAIT ? sizeof(struct hum_report) : 0;
    if (count < 0 || bytes > most || (int)HUM_FIELD(head.word, SRC) != from->rank ||
        (type == HUM_PACKET_EAGER && bytes != hum_head_size(head))) {
        hum_malformed(from->rank, "in shared memory");
        return false;
    }
    struct hum_words words = {{0}};
    memcpy(words.word, slot->data, in_front);
    const uint8_t *data = slot->data + in_front;
    if (in_front + bytes > INLINE_BYTES) data = from->bulk + (bulk_place(from->bulk_next, bytes) & (bulk_bytes - 1));
    if (!hum_came(from->rank, head, &words, count, data, bytes)) return false;
    consumed(from, in_front, bytes);
    return true;
}

int hum_shm_poll(void)
{
    enum { AT_ONCE = 64 };
    int n = 0;
    for (int i = 0; i < reader_count; i++) {
        struct reader *from = &readers[i];
        const struct slot *slot;
        for (int taken = 0; taken < AT_ONCE && (slot = ready(from)) != NULL; taken++, n++)
            if (hum_job.peers[from->rank].lost || !take(from, slot)) break;
    }
    return n;
}

bool hum_shm_recv(int source, unsigned context, int tag, unsigned code, void *buffer, size_t room, int *found_tag, size_t *found)
{
    struct reader *from = &readers[reader_of[source]];
    const struct slot *slot = ready(from);
    if (slot == NULL) return false;
    struct hum_head head = slot->head;
    size_t bytes = slot->bytes;
    if (HUM_FIELD(head.word, TYPE) != HUM_PACKET_EAGER || hum_head_context(head) != context ||
        (tag != HUM_ANY_TAG && tag != hum_head_tag(head)) || bytes > room || bytes != hum_head_size(head) ||
        bytes > bulk_bytes / 2 || !hum_codes_agree(code, HUM_FIELD(head.word, DTYPE)) || (int)HUM_FIELD(head.word, SRC) != source)
        return false;
    const uint8_t *data = bytes <= INLINE_BYTES ? slot->data : from->bulk + (bulk_place(from->bulk_next, bytes) & (bulk_bytes - 1));
    hum_copy(buffer, data, bytes);
    *found_tag = hum_head_tag(head);
    *found = bytes;
    consumed(from, 0, bytes);
    hum_job.peers[source].in++;
    hum_job.block->received++;
    hum_job.block->received_bytes += bytes;
    return true;
}
