/* Reductions. */
#include "internal.h"
#include "pairs.h"

#include <complex.h>
#include <stdlib.h>

enum { MAX, MIN, SUM, PROD, LAND, BAND, LOR, BOR, LXOR, BXOR, MAXLOC, MINLOC, USER };

#define OP(object, text, which) struct hum_op object = {.name = text, .commutes = true, .builtin = which}
OP(hum_op_max, "HUM_MAX", MAX);
OP(hum_op_min, "HUM_MIN", MIN);
OP(hum_op_sum, "HUM_SUM", SUM);
OP(hum_op_prod, "HUM_PROD", PROD);
OP(hum_op_land, "HUM_LAND", LAND);
OP(hum_op_band, "HUM_BAND", BAND);
OP(hum_op_lor, "HUM_LOR", LOR);
OP(hum_op_bor, "HUM_BOR", BOR);
OP(hum_op_lxor, "HUM_LXOR", LXOR);
OP(hum_op_bxor, "HUM_BXOR", BXOR);
OP(hum_op_maxloc, "HUM_MAXLOC", MAXLOC);
OP(hum_op_minloc, "HUM_MINLOC", MINLOC);

/* Each case is a separate loop, so that the compiler vectorizes it. */
#define EACH(ctype, expression)                                                                                          \
    do {                                                                                                                 \
        const ctype *a = in;                                                                                             \
        ctype *b = inout;                                                                                                \
        for (size_t i = 0; i < n; i++) b[i] = (ctype)(expression);                                                       \
        return true;                                                                                                     \
    } while (0)
#define ORDERED(ctype)                                                                                                   \
    case MAX: EACH(ctype, a[i] > b[i] ? a[i] : b[i]);                                                                    \
    case MIN: EACH(ctype, a[i] < b[i] ? a[i] : b[i]);
#define RING(ctype)                                                                                                      \
    case SUM: EACH(ctype, a[i] + b[i]);                                                                                  \
    case PROD: EACH(ctype, a[i] * b[i]);
/* Sums and products of integers wrap. */
#define WRAPPING(ctype, wide)                                                                                            \
    case SUM: EACH(ctype, (wide)a[i] + (wide)b[i]);                                                                      \
    case PROD: EACH(ctype, (wide)a[i] * (wide)b[i]);
#define LOGICAL(ctype)                                                                                                   \
    case LAND: EACH(ctype, a[i] && b[i]);                                                                                \
    case LOR: EACH(ctype, a[i] || b[i]);                                                                                 \
    case LXOR: EACH(ctype, !a[i] != !b[i]);
#define BITS(ctype)                                                                                                      \
    case BAND: EACH(ctype, a[i] & b[i]);                                                                                 \
    case BOR: EACH(ctype, a[i] | b[i]);                                                                                  \
    case BXOR: EACH(ctype, a[i] ^ b[i]);
#define LOCATED(name)                                                                                                    \
    case MAXLOC: {                                                                                                       \
        const struct hum_pair_##name *a = in;                                                                            \
        struct hum_pair_##name *b = inout;                                                                               \
        for (size_t i = 0; i < n; i++)                                                                                   \
            if (a[i].value > b[i].value || (a[i].value == b[i].value && a[i].place < b[i].place)) b[i] = a[i];           \
        return true;                                                                                                     \
    }                                                                                                                    \
    case MINLOC: {                                                                                                       \
        const struct hum_pair_##name *a = in;                                                                            \
        struct hum_pair_##name *b = inout;                                                                               \
        for (size_t i = 0; i < n; i++)                                                                                   \
            if (a[i].value < b[i].value || (a[i].value == b[i].value && a[i].place < b[i].place)) b[i] = a[i];           \
        return true;                                                                                                     \
    }

#define INTEGER(name, ctype, wide)                                                                                       \
    static bool name(int op, const void *restrict in, void *restrict inout, size_t n)                                    \
    {                                                                                                                    \
        switch (op) { ORDERED(ctype) WRAPPING(ctype, wide) LOGICAL(ctype) BITS(ctype) default: return false; }           \
    }
#define REAL(name, ctype)                                                                                                \
    static bool name(int op, const void *restrict in, void *restrict inout, size_t n)                                    \
    {                                                                                                                    \
        switch (op) { ORDERED(ctype) RING(ctype) LOGICAL(ctype) default: return false; }                                 \
    }
#define COMPLEX(name, ctype)                                                                                             \
    static bool name(int op, const void *restrict in, void *restrict inout, size_t n)                                    \
    {                                                                                                                    \
        switch (op) { RING(ctype) default: return false; }                                                               \
    }
#define PAIR(name, which)                                                                                                \
    static bool name(int op, const void *restrict in, void *restrict inout, size_t n)                                    \
    {                                                                                                                    \
        switch (op) { LOCATED(which) default: return false; }                                                            \
    }

INTEGER(on_char, char, unsigned)
INTEGER(on_int8, int8_t, unsigned)
INTEGER(on_uint8, uint8_t, unsigned)
INTEGER(on_int16, int16_t, unsigned)
INTEGER(on_uint16, uint16_t, unsigned)
INTEGER(on_int32, int32_t, uint32_t)
INTEGER(on_uint32, uint32_t, uint32_t)
INTEGER(on_int64, int64_t, uint64_t)
INTEGER(on_uint64, uint64_t, uint64_t)
REAL(on_float, float)
REAL(on_double, double)
REAL(on_long_double, long double)
COMPLEX(on_float_complex, float complex)
COMPLEX(on_double_complex, double complex)
PAIR(on_float_int, float)
PAIR(on_double_int, double)
PAIR(on_long_int, long)
PAIR(on_short_int, short)
PAIR(on_two_int, int)

static bool on_byte(int op, const void *restrict in, void *restrict inout, size_t n)
{
    switch (op) { BITS(unsigned char) default: return false; }
}

static bool on_bool(int op, const void *restrict in, void *restrict inout, size_t n)
{
    switch (op) { LOGICAL(_Bool) default: return false; }
}

typedef bool on_element(int op, const void *restrict in, void *restrict inout, size_t n);
static on_element *const tables[HUM_EL_NONE] = {
    [HUM_EL_BYTE] = on_byte, [HUM_EL_CHAR] = on_char, [HUM_EL_INT8] = on_int8, [HUM_EL_UINT8] = on_uint8,
    [HUM_EL_INT16] = on_int16, [HUM_EL_UINT16] = on_uint16, [HUM_EL_INT32] = on_int32, [HUM_EL_UINT32] = on_uint32,
    [HUM_EL_INT64] = on_int64, [HUM_EL_UINT64] = on_uint64, [HUM_EL_FLOAT] = on_float, [HUM_EL_DOUBLE] = on_double,
    [HUM_EL_LONG_DOUBLE] = on_long_double, [HUM_EL_BOOL] = on_bool, [HUM_EL_FLOAT_COMPLEX] = on_float_complex,
    [HUM_EL_DOUBLE_COMPLEX] = on_double_complex, [HUM_EL_FLOAT_INT] = on_float_int, [HUM_EL_DOUBLE_INT] = on_double_int,
    [HUM_EL_LONG_INT] = on_long_int, [HUM_EL_SHORT_INT] = on_short_int, [HUM_EL_TWO_INT] = on_two_int,
};

bool hum_op_apply(HUM_Op op, const void *in, void *inout, int count, HUM_Datatype type)
{
    if (op->builtin == USER) {
        op->user((void *)(uintptr_t)in, inout, &count, &type);
        return true;
    }
    if (type->element == HUM_EL_NONE || !hum_type_contiguous(type)) return false;
    return tables[type->element](op->builtin, in, inout, (size_t)count * type->elements);
}

bool hum_op_allowed(HUM_Op op, HUM_Datatype type)
{
    if (op->builtin == USER) return true;
    max_align_t nothing[2] = {0};
    return hum_op_apply(op, nothing, nothing + 1, 0, type);
}

bool hum_op_on_boards(HUM_Op op, HUM_Datatype type)
{
    bool real = type->element == HUM_EL_FLOAT || type->element == HUM_EL_DOUBLE;
    return op->builtin <= (real ? PROD : BXOR) && type->element <= HUM_EL_DOUBLE && type->elements == 1;
}

int HUM_Op_create(HUM_User_function *function, int commutes, HUM_Op *made)
{
    struct hum_op *op = function != NULL ? calloc(1, sizeof *op) : NULL;
    if (op == NULL) return hum_fail(HUM_COMM_WORLD, HUM_ERR_OP, HUM_IN_Op_create, "the function is null, or memory is exhausted");
    *op = (struct hum_op){.name = "a user's operation", .commutes = commutes, .builtin = USER, .user = function};
    *made = op;
    return HUM_SUCCESS;
}

int HUM_Op_free(HUM_Op *op)
{
    if (op == NULL || *op == NULL || (*op)->builtin != USER)
        return hum_fail(HUM_COMM_WORLD, HUM_ERR_OP, HUM_IN_Op_free, "not an operation of HUM_Op_create");
    free(*op);
    *op = NULL;
    return HUM_SUCCESS;
}
