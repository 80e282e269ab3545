/* Compares the items of printf for synthesized kernels with the printf of this host. */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char got[1024];
static size_t length;

static void port_text(unsigned char c)
{
    if (length + 1 < sizeof got) got[length++] = (char)c;
}

#define HUM_TEXT const char
#include "print.h"

static uint64_t state = 1;

static uint64_t chance(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Any bits, numbers near 1, floats, decimal fractions, and values at the limits. */
static double number(void)
{
    static const double limits[] = {
        0, -0.0, 0.5, 2.5, 9.5, 0.95, 9.9999999, 999999.5, 99999.95, 1e-5, 1e-4, 0.00009999995,
        INFINITY, -INFINITY, NAN, 5e-324, 1.7976931348623157e308, 0x1.fffffep+127, 0x1p-149,
    };
    uint64_t bits = chance();
    double value;
    switch (chance() % 5) {
    case 0: memcpy(&value, &bits, sizeof value); return value;
    case 1: return (double)(int64_t)(bits >> chance() % 60) / (double)(1 << chance() % 12);
    case 2: return (float)(bits % 100000) / 1000;
    case 3: return (double)(bits % 1000) * pow(10, (double)(chance() % 40) - 20);
    default: return limits[bits % (sizeof limits / sizeof *limits)];
    }
}

/* The expected text of %#g is that of %e or %f: some hosts' printf drops zeroes that belong to it
 * after rounding up to a power of ten. */
static void general(char *expected, size_t size, const char *flags, int width, int precision, bool upper, double value)
{
    char text[400], format[32];
    int digits = precision < 0 ? 6 : precision > 0 ? precision : 1;
    snprintf(text, sizeof text, "%.*e", digits - 1, value);
    int power = atoi(strchr(text, 'e') + 1);
    bool exponential = power < -4 || power >= digits;
    snprintf(format, sizeof format, "%%%s*.*%c", flags, (exponential ? 'e' : 'f') - (upper ? 32 : 0));
    snprintf(expected, size, format, width, exponential ? digits - 1 : digits - 1 - power, value);
}

int main(void)
{
    static const char set[] = "-0+ #", kinds[] = "diuxXofFeEgGaA";
    static const unsigned meaning[] = {PRINT_LEFT, PRINT_ZEROES, PRINT_PLUS, PRINT_BLANK, PRINT_ALTERNATE};
    int differ = 0;
    for (int round = 0; round < 300000; round++) {
        char flags[8] = "", format[32], expected[1024];
        unsigned bits = 0;
        for (int i = 0, n = 0; i < 5; i++)
            if (chance() % 4 == 0) {
                flags[n++] = set[i];
                bits |= meaning[i];
            }
        char kind = kinds[chance() % (sizeof kinds - 1)];
        bool upper = kind < 'a';
        if (upper) bits |= PRINT_UPPER;
        int width = chance() % 2 ? (int)(chance() % 30) : 0;
        int precision = chance() % 3 ? (int)(chance() % (chance() % 8 ? 12 : 171)) : -1;
        double value = 0;
        length = 0;
        if (strchr("diuxXo", kind)) {
            uint64_t whole = chance() % 8 ? chance() >> chance() % 64 : 0;
            if (precision > 60) precision = 60;
            snprintf(format, sizeof format, "%%%s*.*ll%c", flags, kind);
            snprintf(expected, sizeof expected, format, width, precision, whole);
            if (kind == 'd' || kind == 'i') bits |= PRINT_SIGNED;
            uint32_t base = kind == 'o' ? 8 : kind == 'x' || kind == 'X' ? 16 : 10;
            hum_print_number(whole, base, width, precision, bits);
        } else {
            value = number();
            snprintf(format, sizeof format, "%%%s*.*%c", flags, kind);
            if ((kind | 32) == 'g' && bits & PRINT_ALTERNATE && isfinite(value))
                general(expected, sizeof expected, flags, width, precision, upper, value);
            else
                snprintf(expected, sizeof expected, format, width, precision, value);
            if ((kind | 32) == 'f') hum_print_double(value, width, precision, bits);
            else if ((kind | 32) == 'e') hum_print_scientific(value, width, precision, bits | PRINT_EXPONENT);
            else if ((kind | 32) == 'g') hum_print_scientific(value, width, precision, bits | PRINT_GENERAL);
            else hum_print_hexadecimal(value, width, precision, bits);
        }
        got[length] = 0;
        if (strcmp(got, expected) == 0) continue;
        printf("%s with %d, %d of %a: '%s', expected '%s'\n", format, width, precision, value, got, expected);
        if (++differ == 10) break;
    }
    return differ != 0;
}
