/*
 * The items of printf for synthesized kernels: crates/hls/src/passes/printf.rs replaces a call by
 * calls of these functions. Shared by C and OpenCL C: HUM_TEXT is the type of a text's characters,
 * and port_text prints one character.
 */
enum {
    PRINT_LEFT = 1, PRINT_ZEROES = 2, PRINT_PLUS = 4, PRINT_BLANK = 8, PRINT_UPPER = 16, PRINT_SIGNED = 32,
    PRINT_ALTERNATE = 64, PRINT_EXPONENT = 128, PRINT_GENERAL = 256
};

void hum_print_text(HUM_TEXT *text)
{
    for (; *text != 0; text++) port_text((unsigned char)*text);
}

static void hum_print_pad(int count, unsigned char with)
{
    for (; count > 0; count--) port_text(with);
}

/* Prints the characters before `count` further ones in a width: blanks, a sign (0: none), 0x or 0X
 * (`base` is the x, or 0), and zeroes. */
static inline void hum_print_front(int count, unsigned char sign, unsigned char base, int width, unsigned flags)
{
    int blanks = width - count - (sign != 0) - (base != 0 ? 2 : 0);
    if (!(flags & (PRINT_LEFT | PRINT_ZEROES))) hum_print_pad(blanks, ' ');
    if (sign != 0) port_text(sign);
    if (base != 0) {
        port_text('0');
        port_text(base);
    }
    if ((flags & (PRINT_LEFT | PRINT_ZEROES)) == PRINT_ZEROES) hum_print_pad(blanks, '0');
}

/* `digits` from the lowest on, with a sign (0: none) and up to a width. */
static __attribute__((noinline)) void hum_print_digits(const unsigned char *digits, int count, unsigned char sign, unsigned char base, int width, unsigned flags)
{
    int all = count + (sign != 0) + (base != 0 ? 2 : 0);
    hum_print_front(count, sign, base, width, flags);
    while (count > 0) port_text(digits[--count]);
    if (flags & PRINT_LEFT) hum_print_pad(width - all, ' ');
}

static inline unsigned char hum_print_sign(bool negative, unsigned flags)
{
    return negative ? '-' : flags & PRINT_PLUS ? '+' : flags & PRINT_BLANK ? ' ' : 0;
}

static inline unsigned char hum_print_digit(unsigned digit, unsigned flags)
{
    return (unsigned char)(digit < 10 ? '0' + digit : (flags & PRINT_UPPER ? 'A' : 'a') + digit - 10);
}

/* %d, %u, %x, %o: `base` 10, 16 or 8; `precision` is the minimum number of digits,
 * negative if absent. */
void hum_print_number(uint64_t value, uint32_t base, int width, int precision, unsigned flags)
{
    unsigned char digits[65];
    bool negative = (flags & PRINT_SIGNED) != 0 && (int64_t)value < 0;
    if (negative) value = 0 - value;
    unsigned char letter = 0;
    if (flags & PRINT_ALTERNATE && base == 16 && value != 0) letter = flags & PRINT_UPPER ? 'X' : 'x';
    int count = 0;
    for (; value != 0; value /= base) digits[count++] = hum_print_digit((unsigned)(value % base), flags);
    if (precision >= 0) flags &= ~(unsigned)PRINT_ZEROES;
    else precision = 1;
    /* The highest digit of an octal number is a zero then. */
    if (flags & PRINT_ALTERNATE && base == 8 && precision <= count) precision = count + 1;
    if (precision > 64) precision = 64;
    while (count < precision) digits[count++] = '0';
    hum_print_digits(digits, count, flags & PRINT_SIGNED ? hum_print_sign(negative, flags) : 0, letter, width, flags);
}

/* Whether a double with these bits is infinite or not a number, and is printed. */
static inline bool hum_print_special(uint64_t bits, int width, unsigned flags)
{
    if ((bits >> 52 & 0x7ff) != 0x7ff) return false;
    unsigned char letters[3];
    HUM_TEXT *word = bits << 12 != 0 ? "nan" : "inf";
    for (int i = 0; i < 3; i++) letters[i] = (unsigned char)(word[2 - i] - (flags & PRINT_UPPER ? 'a' - 'A' : 0));
    hum_print_digits(letters, 3, hum_print_sign(bits >> 63 != 0, flags), 0, width, flags & ~(unsigned)PRINT_ZEROES);
    return true;
}

static inline int hum_print_length_of_power(int power, int least)
{
    if (power < 0) power = -power;
    int length = power >= 1000 ? 4 : power >= 100 ? 3 : power >= 10 ? 2 : 1;
    return length < least ? least : length;
}

/* An exponent with its letter, its sign and at least that many digits. */
static inline void hum_print_power(unsigned char letter, int power, int least)
{
    port_text(letter);
    port_text(power < 0 ? '-' : '+');
    int length = hum_print_length_of_power(power, least);
    if (power < 0) power = -power;
    for (int i = 4, unit = 1000; i > 0; i--) {
        unsigned char digit = '0';
        for (; power >= unit; power -= unit) digit++;
        if (i <= length) port_text(digit);
        unit = unit == 1000 ? 100 : unit == 100 ? 10 : 1;
    }
}

/* One unit is 2^-1074, in digits of 2^16, lowest first. The integer part has its digits before
 * PRINT_POINT, and the fraction from there on. */
enum {
    PRINT_UNITS = 1074, PRINT_PIECES = (1074 + 1024 + 16) / 16 + 1,
    PRINT_WHOLE = PRINT_UNITS / 16, PRINT_SHIFT = PRINT_UNITS % 16,
    PRINT_POINT = 310, PRINT_PLACES = 170, PRINT_DIGITS = PRINT_POINT + PRINT_PLACES + 2
};

static inline int hum_print_first(int power)
{
    return power < 0 ? PRINT_POINT : PRINT_POINT - 1 - power;
}

/* Digits of a finite double without its sign, exact for every value and rounded half to even:
 * `places` after the point, or, if `significant`, after the first digit that is not zero. Returns
 * the power of ten of the first digit, which is at hum_print_first. */
static inline int hum_print_decimal(uint64_t bits, int places, bool significant, unsigned char *digits)
{
    uint16_t pieces[PRINT_PIECES];
    int exponent = (int)(bits >> 52 & 0x7ff);
    uint64_t fraction = bits & (((uint64_t)1 << 52) - 1);
    if (exponent != 0) fraction |= (uint64_t)1 << 52;
    else exponent = 1;
    for (int i = 0; i < PRINT_PIECES; i++) pieces[i] = 0;
    int at = exponent - 1;
    for (int i = 0; i < 5; i++) {
        uint64_t part = i == 0 ? fraction << at % 16 : at % 16 == 0 && i == 4 ? 0 : fraction >> (16 * i - at % 16);
        pieces[at / 16 + i] = (uint16_t)part;
    }
    uint16_t part[PRINT_WHOLE + 1];
    for (int i = 0; i <= PRINT_WHOLE; i++) part[i] = pieces[i];
    part[PRINT_WHOLE] &= (1 << PRINT_SHIFT) - 1;
    /* The integer part is divided by ten until it is zero. */
    for (int i = 0; i < PRINT_PIECES - PRINT_WHOLE; i++) {
        uint32_t two = pieces[PRINT_WHOLE + i] | (i + 1 < PRINT_PIECES - PRINT_WHOLE ? (uint32_t)pieces[PRINT_WHOLE + i + 1] << 16 : 0);
        pieces[i] = (uint16_t)(two >> PRINT_SHIFT);
    }
    int first = PRINT_POINT, top = PRINT_PIECES - PRINT_WHOLE - 1;
    while (top >= 0 && pieces[top] == 0) top--;
    while (top >= 0) {
        uint32_t left = 0;
        for (int i = top; i >= 0; i--) {
            left = left << 16 | pieces[i];
            pieces[i] = (uint16_t)(left / 10);
            left %= 10;
        }
        digits[--first] = (unsigned char)left;
        while (top >= 0 && pieces[top] == 0) top--;
    }
    if (first == PRINT_POINT && (!significant || fraction == 0)) digits[--first] = 0;
    int power = PRINT_POINT - 1 - first;
    /* Multiplying the fraction by ten yields its next digit. The digit after the last one decides
     * how that is rounded. */
    int last = significant ? first + places : PRINT_POINT + places - 1;
    int end = PRINT_POINT;
    while (end <= last + 1) {
        uint32_t carry = 0;
        for (int i = 0; i <= PRINT_WHOLE; i++) {
            carry += (uint32_t)part[i] * 10;
            part[i] = (uint16_t)carry;
            carry >>= 16;
        }
        unsigned char digit = (unsigned char)(part[PRINT_WHOLE] >> PRINT_SHIFT);
        part[PRINT_WHOLE] &= (1 << PRINT_SHIFT) - 1;
        if (end == PRINT_POINT && first == PRINT_POINT && digit == 0) power--;
        else digits[end++] = digit;
    }
    bool rest = false;
    for (int i = 0; i <= PRINT_WHOLE; i++) rest = rest || part[i] != 0;
    for (int i = last + 2; i < end; i++) rest = rest || digits[i] != 0;
    unsigned char next = digits[last + 1];
    bool up = next > 5 || (next == 5 && (rest || (digits[last] & 1) != 0));
    for (int n = last; n >= first && up; n--) {
        up = digits[n] == 9;
        digits[n] = up ? 0 : (unsigned char)(digits[n] + 1);
    }
    if (up) digits[hum_print_first(++power)] = 1;
    return power;
}

/* %f, and with PRINT_EXPONENT or PRINT_GENERAL %e and %g. */
static inline void hum_print_decimals(double value, int width, int precision, unsigned flags)
{
    unsigned char digits[PRINT_DIGITS];
    uint64_t bits;
    __builtin_memcpy(&bits, &value, 8);
    if (hum_print_special(bits, width, flags)) return;
    bool exponential = (flags & PRINT_EXPONENT) != 0, general = (flags & PRINT_GENERAL) != 0;
    if (precision < 0) precision = 6;
    if (precision > PRINT_PLACES) precision = PRINT_PLACES;
    if (general && precision > 0) precision--;
    int power = hum_print_decimal(bits, precision, exponential || general, digits);
    int first = hum_print_first(power), places = precision;
    if (general) {
        exponential = power < -4 || power > precision;
        if (!(flags & PRINT_ALTERNATE))
            while (places > 0 && digits[first + places] == 0) places--;
        if (!exponential) places = places > power ? places - power : 0;
    }
    int whole = exponential || power < 0 ? 1 : power + 1;
    int at = exponential || power >= 0 ? first : first + power;
    bool point = places > 0 || (flags & PRINT_ALTERNATE) != 0;
    unsigned char sign = hum_print_sign(bits >> 63 != 0, flags);
    int count = whole + point + places + (exponential ? 2 + hum_print_length_of_power(power, 2) : 0);
    hum_print_front(count, sign, 0, width, flags);
    for (int i = 0; i < whole + places; i++, at++) {
        if (i == whole) port_text('.');
        port_text((unsigned char)(at < first ? '0' : '0' + digits[at]));
    }
    if (point && places == 0) port_text('.');
    if (exponential) hum_print_power(flags & PRINT_UPPER ? 'E' : 'e', power, 2);
    if (flags & PRINT_LEFT) hum_print_pad(width - count - (sign != 0), ' ');
}

/* Functions of their own: a kernel with one of them lacks the logic of the other. */
void hum_print_double(double value, int width, int precision, unsigned flags)
{
    hum_print_decimals(value, width, precision, flags & ~(unsigned)(PRINT_EXPONENT | PRINT_GENERAL));
}

void hum_print_scientific(double value, int width, int precision, unsigned flags)
{
    hum_print_decimals(value, width, precision, flags);
}

/* %a: `precision` is negative if absent: as many digits as the value has. */
void hum_print_hexadecimal(double value, int width, int precision, unsigned flags)
{
    enum { FRACTION = 13 };
    uint64_t bits;
    __builtin_memcpy(&bits, &value, 8);
    if (hum_print_special(bits, width, flags)) return;
    int exponent = (int)(bits >> 52 & 0x7ff);
    uint64_t number = bits & (((uint64_t)1 << 52) - 1);
    int power = exponent != 0 ? exponent - 1023 : number != 0 ? -1022 : 0;
    if (exponent != 0) number |= (uint64_t)1 << 52;
    if (precision < 0) {
        precision = FRACTION;
        for (uint64_t rest = number; precision > 0 && (rest & 15) == 0; rest >>= 4) precision--;
    } else if (precision < FRACTION) {
        int drop = 4 * (FRACTION - precision);
        uint64_t unit = (uint64_t)1 << drop, low = number & (unit - 1);
        number -= low;
        if (low > unit / 2 || (low == unit / 2 && (number & unit) != 0)) number += unit;
    }
    bool point = precision > 0 || (flags & PRINT_ALTERNATE) != 0;
    unsigned char sign = hum_print_sign(bits >> 63 != 0, flags);
    int count = 1 + point + precision + 2 + hum_print_length_of_power(power, 1);
    hum_print_front(count, sign, flags & PRINT_UPPER ? 'X' : 'x', width, flags);
    for (int i = 0; i <= precision; i++) {
        port_text(hum_print_digit((unsigned)(number >> 52), flags));
        if (i == 0 && point) port_text('.');
        number = (number & (((uint64_t)1 << 52) - 1)) << 4;
    }
    hum_print_power(flags & PRINT_UPPER ? 'P' : 'p', power, 1);
    if (flags & PRINT_LEFT) hum_print_pad(width - count - (sign != 0) - 2, ' ');
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
