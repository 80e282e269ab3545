/*
 * The items of printf for synthesized kernels: crates/hls/src/passes/printf.rs replaces a call by
 * calls of these functions. Shared by C and OpenCL C: HUM_TEXT is the type of a text's characters,
 * and port_text prints one character.
 */
enum { PRINT_LEFT = 1, PRINT_ZEROES = 2, PRINT_PLUS = 4, PRINT_BLANK = 8, PRINT_UPPER = 16, PRINT_SIGNED = 32 };

void hum_print_text(HUM_TEXT *text)
{
    for (; *text != 0; text++) port_text((unsigned char)*text);
}

static void hum_print_pad(int count, unsigned char with)
{
    for (; count > 0; count--) port_text(with);
}

/* `digits` from the lowest on, with a sign (0: none) and up to a width. */
static __attribute__((noinline)) void hum_print_digits(const unsigned char *digits, int count, unsigned char sign, int width, unsigned flags)
{
    int blanks = width - count - (sign != 0);
    if (!(flags & (PRINT_LEFT | PRINT_ZEROES))) hum_print_pad(blanks, ' ');
    if (sign != 0) port_text(sign);
    if ((flags & (PRINT_LEFT | PRINT_ZEROES)) == PRINT_ZEROES) hum_print_pad(blanks, '0');
    while (count > 0) port_text(digits[--count]);
    if (flags & PRINT_LEFT) hum_print_pad(blanks, ' ');
}

static inline unsigned char hum_print_sign(bool negative, unsigned flags)
{
    return negative ? '-' : flags & PRINT_PLUS ? '+' : flags & PRINT_BLANK ? ' ' : 0;
}

/* %d, %u, %x, %o: `base` 10, 16 or 8; `precision` is the minimum number of digits,
 * negative if absent. */
void hum_print_number(uint64_t value, uint32_t base, int width, int precision, unsigned flags)
{
    unsigned char digits[64];
    bool negative = (flags & PRINT_SIGNED) != 0 && (int64_t)value < 0;
    if (negative) value = 0 - value;
    int count = 0;
    for (; value != 0; value /= base) {
        unsigned digit = (unsigned)(value % base);
        digits[count++] = (unsigned char)(digit < 10 ? '0' + digit : (flags & PRINT_UPPER ? 'A' : 'a') + digit - 10);
    }
    if (precision >= 0) flags &= ~(unsigned)PRINT_ZEROES;
    else precision = 1;
    if (precision > 64) precision = 64;
    while (count < precision) digits[count++] = '0';
    hum_print_digits(digits, count, flags & PRINT_SIGNED ? hum_print_sign(negative, flags) : 0, width, flags);
}

/* %f: exact for every value: one unit is 2^-1074, in digits of 2^16, lowest first. */
void hum_print_double(double value, int width, int precision, unsigned flags)
{
    enum { UNITS = 1074, PIECES = (1074 + 1024 + 16) / 16 + 1, DIGITS = 340 };
    uint16_t pieces[PIECES];
    unsigned char digits[DIGITS];
    uint64_t bits;
    __builtin_memcpy(&bits, &value, 8);
    int exponent = (int)(bits >> 52 & 0x7ff);
    uint64_t fraction = bits & (((uint64_t)1 << 52) - 1);
    unsigned char sign = hum_print_sign(bits >> 63 != 0, flags);
    if (exponent == 0x7ff) {
        HUM_TEXT *word = fraction != 0 ? "nan" : "inf";
        for (int i = 0; i < 3; i++) digits[i] = (unsigned char)word[2 - i];
        hum_print_digits(digits, 3, sign, width, flags & ~(unsigned)PRINT_ZEROES);
        return;
    }
    if (exponent != 0) fraction |= (uint64_t)1 << 52;
    else exponent = 1;
    for (int i = 0; i < PIECES; i++) pieces[i] = 0;
    int at = exponent - 1;
    for (int i = 0; i < 5; i++) {
        uint64_t part = i == 0 ? fraction << at % 16 : at % 16 == 0 && i == 4 ? 0 : fraction >> (16 * i - at % 16);
        pieces[at / 16 + i] = (uint16_t)part;
    }
    /* The fraction is the part below UNITS: multiplying it by ten yields the next digit. The last
     * digit is rounded half to even. */
    unsigned char behind[DIGITS];
    if (precision > DIGITS / 2) precision = DIGITS / 2;
    enum { WHOLE = UNITS / 16, SHIFT = UNITS % 16 };
    uint16_t part[WHOLE + 1];
    for (int i = 0; i <= WHOLE; i++) part[i] = pieces[i];
    part[WHOLE] &= (1 << SHIFT) - 1;
    for (int n = 0; n < precision; n++) {
        uint32_t carry = 0;
        for (int i = 0; i <= WHOLE; i++) {
            carry += (uint32_t)part[i] * 10;
            part[i] = (uint16_t)carry;
            carry >>= 16;
        }
        behind[n] = (unsigned char)(part[WHOLE] >> SHIFT);
        part[WHOLE] &= (1 << SHIFT) - 1;
    }
    bool rest = false;
    for (int i = 0; i < WHOLE; i++) rest = rest || part[i] != 0;
    int middle = part[WHOLE] >> (SHIFT - 1) & 1;
    rest = rest || (part[WHOLE] & ((1 << (SHIFT - 1)) - 1)) != 0;
    /* The integer part is divided by ten until it is zero. */
    for (int i = 0; i < PIECES - WHOLE; i++) {
        uint32_t two = pieces[WHOLE + i] | (i + 1 < PIECES - WHOLE ? (uint32_t)pieces[WHOLE + i + 1] << 16 : 0);
        pieces[i] = (uint16_t)(two >> SHIFT);
    }
    int count = 0, top = PIECES - WHOLE - 1;
    while (top >= 0 && pieces[top] == 0) top--;
    while (top >= 0) {
        uint32_t left = 0;
        for (int i = top; i >= 0; i--) {
            left = left << 16 | pieces[i];
            pieces[i] = (uint16_t)(left / 10);
            left %= 10;
        }
        digits[count++] = (unsigned char)('0' + left);
        while (top >= 0 && pieces[top] == 0) top--;
    }
    if (count == 0) digits[count++] = '0';
    bool odd = ((precision > 0 ? behind[precision - 1] : digits[0]) & 1) != 0;
    bool up = middle && (rest || odd);
    for (int n = precision - 1; n >= 0 && up; n--) {
        up = behind[n] == 9;
        behind[n] = up ? 0 : (unsigned char)(behind[n] + 1);
    }
    for (int n = 0; n < count && up; n++) {
        up = digits[n] == '9';
        digits[n] = up ? '0' : (unsigned char)(digits[n] + 1);
    }
    if (up) digits[count++] = '1';
    int behinds = precision > 0 ? precision + 1 : 0;
    hum_print_digits(digits, count, sign, flags & PRINT_LEFT ? 0 : width - behinds, flags);
    if (precision > 0) port_text('.');
    for (int n = 0; n < precision; n++) port_text((unsigned char)('0' + behind[n]));
    if (flags & PRINT_LEFT) hum_print_pad(width - count - (sign != 0) - behinds, ' ');
}

void hum_print_character(int c, int width, unsigned flags)
{
    if (!(flags & PRINT_LEFT)) hum_print_pad(width - 1, ' ');
    port_text((unsigned char)c);
    if (flags & PRINT_LEFT) hum_print_pad(width - 1, ' ');
}

void hum_print_string(HUM_TEXT *text, int width, int precision, unsigned flags)
{
    int length = 0;
    while ((precision < 0 || length < precision) && text[length] != 0) length++;
    if (!(flags & PRINT_LEFT)) hum_print_pad(width - length, ' ');
    for (int i = 0; i < length; i++) port_text((unsigned char)text[i]);
    if (flags & PRINT_LEFT) hum_print_pad(width - length, ' ');
}
