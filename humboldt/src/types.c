/* Types: C's basic types, and derived types, which are lists of (offset, bytes). */
#include "internal.h"
#include "pairs.h"

#include <complex.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define BASIC(object, text, ctype, wire, el)                                                                            \
    struct hum_type object = {.name = text, .size = sizeof(ctype), .extent = sizeof(ctype), .code = HUM_CODE_##wire,     \
                              .element = HUM_EL_##el, .elements = 1}
#define PAIR(object, text, pair, ctype, wire, el)                                                                        \
    struct hum_type object = {.name = text, .size = sizeof(struct hum_pair_##pair), .extent = sizeof(struct hum_pair_##pair), \
                              .code = HUM_CODE_PAIR, .lead = HUM_CODE_##wire, .lead_bytes = sizeof(ctype),                \
                              .element = HUM_EL_##el, .elements = 1}
BASIC(hum_byte, "HUM_BYTE", char, UNTYPED, BYTE);
BASIC(hum_packed, "HUM_PACKED", char, UNTYPED, BYTE);
BASIC(hum_char, "HUM_CHAR", char, CHAR, CHAR);
BASIC(hum_signed_char, "HUM_SIGNED_CHAR", signed char, INT8, INT8);
BASIC(hum_unsigned_char, "HUM_UNSIGNED_CHAR", unsigned char, UINT8, UINT8);
BASIC(hum_short, "HUM_SHORT", short, INT16, INT16);
BASIC(hum_unsigned_short, "HUM_UNSIGNED_SHORT", unsigned short, UINT16, UINT16);
BASIC(hum_int, "HUM_INT", int, INT32, INT32);
BASIC(hum_unsigned, "HUM_UNSIGNED", unsigned, UINT32, UINT32);
#if HUM_LONG_BITS == 64
BASIC(hum_long, "HUM_LONG", hum_long_value, INT64, INT64);
BASIC(hum_unsigned_long, "HUM_UNSIGNED_LONG", hum_unsigned_long_value, UINT64, UINT64);
#else
BASIC(hum_long, "HUM_LONG", hum_long_value, INT32, INT32);
BASIC(hum_unsigned_long, "HUM_UNSIGNED_LONG", hum_unsigned_long_value, UINT32, UINT32);
#endif
BASIC(hum_long_long, "HUM_LONG_LONG", long long, INT64, INT64);
BASIC(hum_unsigned_long_long, "HUM_UNSIGNED_LONG_LONG", unsigned long long, UINT64, UINT64);
BASIC(hum_float, "HUM_FLOAT", float, FLOAT, FLOAT);
BASIC(hum_double, "HUM_DOUBLE", double, DOUBLE, DOUBLE);
BASIC(hum_long_double, "HUM_LONG_DOUBLE", long double, LONG_DOUBLE, LONG_DOUBLE);
BASIC(hum_bool, "HUM_C_BOOL", _Bool, UINT8, BOOL);
BASIC(hum_float_complex, "HUM_C_FLOAT_COMPLEX", float complex, COMPLEX, FLOAT_COMPLEX);
BASIC(hum_double_complex, "HUM_C_DOUBLE_COMPLEX", double complex, COMPLEX, DOUBLE_COMPLEX);
PAIR(hum_float_int, "HUM_FLOAT_INT", float, float, FLOAT, FLOAT_INT);
PAIR(hum_double_int, "HUM_DOUBLE_INT", double, double, DOUBLE, DOUBLE_INT);
#if HUM_LONG_BITS == 64
PAIR(hum_long_int, "HUM_LONG_INT", long, hum_long_value, INT64, LONG_INT);
#else
PAIR(hum_long_int, "HUM_LONG_INT", long, hum_long_value, INT32, LONG_INT);
#endif
PAIR(hum_short_int, "HUM_SHORT_INT", short, short, INT16, SHORT_INT);
BASIC(hum_2int, "HUM_2INT", struct hum_pair_int, INT32, TWO_INT);
BASIC(hum_int8, "HUM_INT8_T", int8_t, INT8, INT8);
BASIC(hum_int16, "HUM_INT16_T", int16_t, INT16, INT16);
BASIC(hum_int32, "HUM_INT32_T", int32_t, INT32, INT32);
BASIC(hum_int64, "HUM_INT64_T", int64_t, INT64, INT64);
BASIC(hum_uint8, "HUM_UINT8_T", uint8_t, UINT8, UINT8);
BASIC(hum_uint16, "HUM_UINT16_T", uint16_t, UINT16, UINT16);
BASIC(hum_uint32, "HUM_UINT32_T", uint32_t, UINT32, UINT32);
BASIC(hum_uint64, "HUM_UINT64_T", uint64_t, UINT64, UINT64);

/* Maximum number of parts of a derived type. */
enum { PARTS_MAX = 1 << 24 };

void hum_type_pack(const struct hum_type *type, int count, const void *from, void *to)
{
    if (hum_type_contiguous(type)) {
        if (count > 0) memcpy(to, from, type->size * (size_t)count);
        return;
    }
    uint8_t *at = to;
    for (int i = 0; i < count; i++)
        for (int p = 0; p < type->parts; p++) {
            memcpy(at, (const uint8_t *)from + (ptrdiff_t)type->extent * i + type->part[p].offset, type->part[p].bytes);
            at += type->part[p].bytes;
        }
}

void hum_type_unpack(const struct hum_type *type, int count, const void *from, size_t bytes, void *to)
{
    const uint8_t *at = from;
    if (hum_type_contiguous(type)) {
        if (bytes > 0) memcpy(to, from, bytes);
        return;
    }
    for (int i = 0; i < count; i++)
        for (int p = 0; p < type->parts; p++) {
            size_t n = type->part[p].bytes < bytes ? type->part[p].bytes : bytes;
            memcpy((uint8_t *)to + (ptrdiff_t)type->extent * i + type->part[p].offset, at, n);
            at += n;
            bytes -= n;
            if (bytes == 0) return;
        }
}

static struct hum_type *made_of(int parts)
{
    struct hum_type *type = calloc(1, sizeof *type);
    if (type == NULL) return NULL;
    type->name = "a derived type";
    type->uses = 1;
    type->element = HUM_EL_NONE;
    type->part = calloc((size_t)parts, sizeof *type->part);
    if (type->part == NULL) {
        free(type);
        return NULL;
    }
    return type;
}

/* Adds `count` elements of `old` from `offset` on; joins adjacent parts. */
static void add(struct hum_type *type, const struct hum_type *old, ptrdiff_t offset, int count)
{
    for (int i = 0; i < count; i++) {
        int parts = hum_type_contiguous(old) ? 1 : old->parts;
        for (int p = 0; p < parts; p++) {
            struct hum_part part = {.offset = 0, .bytes = old->size};
            if (!hum_type_contiguous(old)) part = old->part[p];
            part.offset += offset + (ptrdiff_t)old->extent * i;
            struct hum_part *last = type->parts > 0 ? &type->part[type->parts - 1] : NULL;
            if (part.bytes == 0) continue;
            if (last != NULL && last->offset + (ptrdiff_t)last->bytes == part.offset)
                last->bytes += part.bytes;
            else
                type->part[type->parts++] = part;
            type->size += part.bytes;
        }
    }
}

/* Adds `count` elements of `old` to the type's signature, before they are added to the type. */
static void sign(struct hum_type *type, const struct hum_type *old, int count)
{
    if (count == 0 || old->size == 0) return;
    bool mixed = old->code >= HUM_CODE_PAIR;
    unsigned first = mixed ? old->lead : old->code;
    if (type->size == 0) {
        type->code = old->code;
        type->lead = first;
        type->lead_bytes = mixed ? old->lead_bytes : old->size * (size_t)count;
    } else if (type->code < HUM_CODE_PAIR && type->code == first) {
        type->lead_bytes += mixed ? old->lead_bytes : old->size * (size_t)count;
        if (mixed) type->code = HUM_CODE_MIXED;
    } else {
        type->code = HUM_CODE_MIXED;
    }
}

/* A type with a single run of bytes from its beginning is contiguous. */
static struct hum_type *settled(struct hum_type *type, size_t extent)
{
    type->extent = extent;
    bool dense = type->parts == 0 || (type->parts == 1 && type->part[0].offset == 0 && type->part[0].bytes == extent);
    if (dense) {
        free(type->part);
        type->part = NULL;
        type->parts = 0;
        type->extent = type->size;
    }
    return type;
}

static long parts_of(const struct hum_type *type) { return hum_type_contiguous(type) ? 1 : type->parts; }

int HUM_Type_vector(int count, int length, int stride, HUM_Datatype old, HUM_Datatype *made)
{
    if (old == NULL) return hum_fail(HUM_COMM_WORLD, HUM_ERR_TYPE, HUM_IN_Type_vector, "the type is null");
    if (count < 0 || length < 0 || (double)count * length * (double)parts_of(old) > PARTS_MAX)
        return hum_fail(HUM_COMM_WORLD, HUM_ERR_COUNT, HUM_IN_Type_vector, "count %d, length %d", count, length);
    if (stride < 0) return hum_fail(HUM_COMM_WORLD, HUM_ERR_UNSUPPORTED, HUM_IN_Type_vector, "negative strides are not supported (%d)", stride);
    int parts = (int)((long)count * length * parts_of(old));
    struct hum_type *type = made_of(parts > 0 ? parts : 1);
    if (type == NULL) return hum_fail(HUM_COMM_WORLD, HUM_ERR_NO_MEM, HUM_IN_Type_vector, "out of memory for %d parts", parts);
    for (int i = 0; i < count; i++) add(type, old, (ptrdiff_t)old->extent * stride * i, length);
    type->code = old->code;
    type->lead = old->lead;
    type->lead_bytes = old->lead_bytes;
    type->element = old->element;
    type->elements = old->elements * (size_t)count * (size_t)length;
    *made = settled(type, count > 0 ? old->extent * ((size_t)stride * (size_t)(count - 1) + (size_t)length) : 0);
    return HUM_SUCCESS;
}

int HUM_Type_contiguous(int count, HUM_Datatype old, HUM_Datatype *made) { return HUM_Type_vector(1, count, count, old, made); }

int HUM_Type_create_struct(int count, const int lengths[], const HUM_Aint places[], const HUM_Datatype types[],
                           HUM_Datatype *made)
{
    double parts = 1;
    for (int i = 0; i < count; i++) {
        if (types[i] == NULL) return hum_fail(HUM_COMM_WORLD, HUM_ERR_TYPE, HUM_IN_Type_create_struct, "type %d is null", i);
        if (lengths[i] < 0 || places[i] < 0)
            return hum_fail(HUM_COMM_WORLD, HUM_ERR_ARG, HUM_IN_Type_create_struct, "member %d: length %d, place %ld", i,
                            lengths[i], (long)places[i]);
        parts += (double)lengths[i] * (double)parts_of(types[i]);
    }
    if (count < 0 || parts > PARTS_MAX) return hum_fail(HUM_COMM_WORLD, HUM_ERR_COUNT, HUM_IN_Type_create_struct, "count %d", count);
    struct hum_type *type = made_of((int)parts);
    if (type == NULL) return hum_fail(HUM_COMM_WORLD, HUM_ERR_NO_MEM, HUM_IN_Type_create_struct, "out of memory");
    size_t end = 0, align = 1;
    type->code = HUM_CODE_UNTYPED;
    for (int i = 0; i < count; i++) {
        sign(type, types[i], lengths[i]);
        add(type, types[i], places[i], lengths[i]);
        size_t last = (size_t)places[i] + types[i]->extent * (size_t)lengths[i];
        if (last > end) end = last;
        if (hum_type_contiguous(types[i]) && types[i]->element != HUM_EL_NONE && types[i]->elements == 1 &&
            types[i]->size > align && types[i]->size <= 16)
            align = types[i]->size;
    }
    *made = settled(type, (end + align - 1) / align * align);
    return HUM_SUCCESS;
}

int HUM_Type_commit(HUM_Datatype *type)
{
    (void)type;
    return HUM_SUCCESS;
}

int HUM_Type_free(HUM_Datatype *type)
{
    if (type == NULL || *type == NULL || strcmp((*type)->name, "a derived type") != 0)
        return hum_fail(HUM_COMM_WORLD, HUM_ERR_TYPE, HUM_IN_Type_free, "not a derived type");
    hum_type_drop(*type);
    *type = NULL;
    return HUM_SUCCESS;
}

void hum_type_drop(struct hum_type *type)
{
    if (type->uses == 0 || --type->uses > 0) return;
    free(type->part);
    free(type);
}

int HUM_Type_size(HUM_Datatype type, int *bytes)
{
    if (type == NULL) return hum_fail(HUM_COMM_WORLD, HUM_ERR_TYPE, HUM_IN_Type_size, "the type is null");
    *bytes = type->size <= INT_MAX ? (int)type->size : HUM_UNDEFINED;
    return HUM_SUCCESS;
}

int HUM_Type_get_extent(HUM_Datatype type, HUM_Aint *lower, HUM_Aint *extent)
{
    if (type == NULL) return hum_fail(HUM_COMM_WORLD, HUM_ERR_TYPE, HUM_IN_Type_get_extent, "the type is null");
    *lower = 0;
    *extent = (HUM_Aint)type->extent;
    return HUM_SUCCESS;
}

int HUM_Get_address(const void *location, HUM_Aint *address)
{
    *address = (HUM_Aint)(uintptr_t)location;
    return HUM_SUCCESS;
}
