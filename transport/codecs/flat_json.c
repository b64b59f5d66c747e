/* Decodes JSON objects with flat fields into columns, and encodes them: no object for each message or value.

   The decoder accepts a part of JSON, and decodes that as every JSON decoder does. It refuses all else: escapes of lone surrogates, long integers, names
   with escapes, names that occur twice, nested values, and anything invalid. The caller then decodes message by message. */
#define _GNU_SOURCE
#include <locale.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __APPLE__
#include <xlocale.h>
#endif

enum { TEXT = 0, INTEGER = 1, REAL = 2, BOOLEAN = 3 };
enum { MOST_DIGITS = 18, EXACT_DIGITS = 15 };

/* A field of the record. `text` has 8 more bytes than all lines together; columns that are not kept are NULL. */
typedef struct {
    const char *name;
    int64_t name_size;
    int32_t kind;
    int32_t is_optional;
    int32_t is_null_if_missing;
    int64_t *integers;
    double *reals;
    uint8_t *booleans;
    uint8_t *is_valid;
    int32_t *text_ends;
    uint8_t *text;
    int64_t text_size;
} field_t;

typedef const uint8_t *place_t;

static const double POWERS[] = {1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

static place_t skip_space(place_t at, place_t end) {
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\n' || *at == '\r'))
        at++;
    return at;
}

/* Returns the number of the first bytes that stand for themselves in a string, up to 8. */
static inline int plain_bytes(uint64_t word) {
    const uint64_t ones = 0x0101010101010101u, highs = 0x8080808080808080u;
    uint64_t quote = word ^ (ones * '"'), escape = word ^ (ones * '\\');
    uint64_t special = ((quote - ones) & ~quote) | ((escape - ones) & ~escape) | ((word - ones * ' ') & ~word) | word;
    special &= highs;
    return special ? __builtin_ctzll(special) >> 3 : 8;
}

/* Returns the size of a valid UTF-8 sequence of several bytes; 0 if it is invalid. */
static int utf8_size(place_t at, place_t end) {
    ptrdiff_t room = end - at;
    uint8_t first = at[0];
    int size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
    if (first < 0xC2 || first > 0xF4 || room < size)
        return 0;
    for (int i = 1; i < size; i++)
        if ((at[i] & 0xC0) != 0x80)
            return 0;
    if ((first == 0xE0 && at[1] < 0xA0) || (first == 0xED && at[1] > 0x9F) || (first == 0xF0 && at[1] < 0x90) ||
        (first == 0xF4 && at[1] > 0x8F))
        return 0;
    return size;
}

static int hex4(place_t at, place_t end) {
    int value = 0;
    if (end - at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        uint8_t c = at[i];
        int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
        if (digit < 0)
            return -1;
        value = value << 4 | digit;
    }
    return value;
}

static int put_utf8(uint8_t *to, uint32_t code) {
    if (code < 0x80) {
        to[0] = (uint8_t)code;
        return 1;
    }
    if (code < 0x800) {
        to[0] = (uint8_t)(0xC0 | code >> 6);
        to[1] = (uint8_t)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        to[0] = (uint8_t)(0xE0 | code >> 12);
        to[1] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
        to[2] = (uint8_t)(0x80 | (code & 0x3F));
        return 3;
    }
    to[0] = (uint8_t)(0xF0 | code >> 18);
    to[1] = (uint8_t)(0x80 | (code >> 12 & 0x3F));
    to[2] = (uint8_t)(0x80 | (code >> 6 & 0x3F));
    to[3] = (uint8_t)(0x80 | (code & 0x3F));
    return 4;
}

/* Decodes an escape after its backslash into `to`, and adds the size there to `size`. */
static place_t scan_escape(place_t at, place_t end, uint8_t *to, int *size) {
    static const char NAMES[] = "\"\\/bfnrt", VALUES[] = "\"\\/\b\f\n\r\t";
    if (at == end)
        return NULL;
    if (*at != 'u') {
        const char *found = *at ? strchr(NAMES, *at) : NULL;
        if (found == NULL)
            return NULL;
        to[0] = (uint8_t)VALUES[found - NAMES];
        *size = 1;
        return at + 1;
    }
    int code = hex4(at + 1, end);
    at += 5;
    if (code < 0 || (code >= 0xDC00 && code <= 0xDFFF))
        return NULL;
    if (code >= 0xD800 && code <= 0xDBFF) {
        int low = end - at >= 6 && at[0] == '\\' && at[1] == 'u' ? hex4(at + 2, end) : -1;
        if (low < 0xDC00 || low > 0xDFFF)
            return NULL;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        at += 6;
    }
    *size = put_utf8(to, (uint32_t)code);
    return at;
}

/* Scans a string after its first quote, and appends it to `to` unless that is NULL. Returns the place after it; NULL to refuse. */
static inline __attribute__((always_inline)) place_t scan_text(place_t at, place_t end, uint8_t *to, int64_t *size) {
    uint8_t *begin = to, unused[4];
    while (at < end) {
        int plain, count = 0;
        if (end - at >= 8) {
            uint64_t word;
            memcpy(&word, at, 8);
            if (to != NULL)
                memcpy(to, &word, 8);
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
            word = __builtin_bswap64(word);
#endif
            plain = plain_bytes(word);
        } else {
            plain = *at != '"' && *at != '\\' && *at >= ' ' && *at < 0x80;
            if (to != NULL)
                *to = *at;
        }
        at += plain;
        if (to != NULL)
            to += plain;
        if (plain == 8 || at == end)
            continue;
        if (*at == '"') {
            if (to != NULL)
                *size += to - begin;
            return at + 1;
        }
        if (*at == '\\') {
            at = scan_escape(at + 1, end, to != NULL ? to : unused, &count);
            if (at == NULL)
                return NULL;
        } else if (*at >= 0x80) {
            count = utf8_size(at, end);
            if (count == 0)
                return NULL;
            if (to != NULL)
                memcpy(to, at, (size_t)count);
            at += count;
        } else if (*at < ' ') {
            return NULL;
        }
        if (to != NULL)
            to += count;
    }
    return NULL;
}

/* Scans a whole number with few digits. The next character decides whether it is one. */
static place_t scan_integer(place_t at, place_t end, int64_t *value) {
    int is_negative = at < end && *at == '-';
    place_t digits = at += is_negative;
    uint64_t found = 0;
    while (at < end && *at >= '0' && *at <= '9' && at - digits <= MOST_DIGITS)
        found = found * 10 + (uint64_t)(*at++ - '0');
    ptrdiff_t count = at - digits;
    if (count == 0 || count > MOST_DIGITS || (*digits == '0' && (count > 1 || is_negative)))
        return NULL;
    *value = is_negative ? -(int64_t)found : (int64_t)found;
    return at;
}

static locale_t c_locale(void) {
    static locale_t found;
    if (!found)
        found = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    return found;
}

/* Scans a number. The conversion is exact: a quotient of two exact numbers, or strtod. */
static place_t scan_real(place_t at, place_t end, double *value) {
    place_t begin = at, digits;
    int64_t found = 0;
    int is_negative = at < end && *at == '-';
    digits = at += is_negative;
    while (at < end && *at >= '0' && *at <= '9')
        found = at - digits < EXACT_DIGITS ? found * 10 + (*at - '0') : found, at++;
    ptrdiff_t whole = at - digits, fraction = 0;
    if (whole == 0 || (*digits == '0' && whole > 1))
        return NULL;
    if (at < end && *at == '.') {
        digits = ++at;
        while (at < end && *at >= '0' && *at <= '9')
            found = whole + (at - digits) < EXACT_DIGITS ? found * 10 + (*at - '0') : found, at++;
        fraction = at - digits;
        if (fraction == 0)
            return NULL;
    } else if (is_negative && found == 0) {
        return NULL;
    }
    int has_exponent = at < end && (*at == 'e' || *at == 'E');
    if (!has_exponent && whole + fraction <= EXACT_DIGITS) {
        *value = (double)found / POWERS[fraction];
        if (is_negative)
            *value = -*value;
        return at;
    }
    if (has_exponent) {
        at++;
        at += at < end && (*at == '+' || *at == '-');
        digits = at;
        while (at < end && *at >= '0' && *at <= '9')
            at++;
        if (at == digits)
            return NULL;
    }
    char copy[64], *stop;
    size_t size = (size_t)(at - begin);
    if (size >= sizeof copy || !c_locale())
        return NULL;
    memcpy(copy, begin, size);
    copy[size] = 0;
    *value = strtod_l(copy, &stop, c_locale());
    return stop == copy + size && isfinite(*value) ? at : NULL;
}

static int starts_with(place_t at, place_t end, const char *word, int64_t size) {
    return end - at >= size && memcmp(at, word, (size_t)size) == 0;
}

/* Scans the value of an unknown field: flat values only. */
static place_t skip_value(place_t at, place_t end) {
    double number;
    if (at == end)
        return NULL;
    if (*at == '"')
        return scan_text(at + 1, end, NULL, NULL);
    if (starts_with(at, end, "true", 4) || starts_with(at, end, "null", 4))
        return at + 4;
    return starts_with(at, end, "false", 5) ? at + 5 : scan_real(at, end, &number);
}

static void end_value(field_t *field, int64_t row, int is_valid) {
    if (field->is_valid != NULL)
        field->is_valid[row] = (uint8_t)is_valid;
    if (field->text_ends != NULL)
        field->text_ends[row + 1] = (int32_t)field->text_size;
    if (is_valid)
        return;
    if (field->integers != NULL)
        field->integers[row] = 0;
    if (field->reals != NULL)
        field->reals[row] = 0;
    if (field->booleans != NULL)
        field->booleans[row] = 0;
}

static place_t scan_boolean(place_t at, place_t end, uint8_t *value) {
    *value = (uint8_t)starts_with(at, end, "true", 4);
    return *value ? at + 4 : starts_with(at, end, "false", 5) ? at + 5 : NULL;
}

static place_t scan_value(place_t at, place_t end, field_t *field, int64_t row) {
    int64_t integer;
    double real;
    uint8_t boolean;
    if (field->is_optional && starts_with(at, end, "null", 4)) {
        end_value(field, row, 0);
        return at + 4;
    }
    switch (field->kind) {
    case TEXT:
        if (at == end || *at != '"')
            return NULL;
        at = field->text != NULL ? scan_text(at + 1, end, field->text + field->text_size, &field->text_size)
                                 : scan_text(at + 1, end, NULL, NULL);
        break;
    case INTEGER:
        at = scan_integer(at, end, &integer);
        if (at != NULL && field->integers != NULL)
            field->integers[row] = integer;
        break;
    case REAL:
        at = scan_real(at, end, &real);
        if (at != NULL && field->reals != NULL)
            field->reals[row] = real;
        break;
    default:
        at = scan_boolean(at, end, &boolean);
        if (at != NULL && field->booleans != NULL)
            field->booleans[row] = boolean;
    }
    if (at != NULL)
        end_value(field, row, 1);
    return at;
}

/* Returns the index of the field whose name begins after a quote; `count` if no field has it. Names are usually in the same order. */
static int64_t field_at(place_t at, place_t end, const field_t *fields, int64_t count, int64_t likely) {
    for (int64_t tried = 0; tried < count; tried++) {
        int64_t index = likely + tried < count ? likely + tried : likely + tried - count;
        const field_t *field = &fields[index];
        if (end - at > field->name_size && at[field->name_size] == '"' && memcmp(at, field->name, (size_t)field->name_size) == 0)
            return index;
    }
    return count;
}

/* Skips an unknown name after its first quote. One with an escape could be a known name. */
static place_t skip_name(place_t at, place_t end) {
    while (at < end && *at != '"') {
        if (*at == '\\' || *at < ' ' || *at >= 0x80)
            return NULL;
        at++;
    }
    return at < end ? at + 1 : NULL;
}

static int decode_line(place_t at, place_t end, field_t *fields, int64_t count, int64_t row) {
    uint64_t seen = 0;
    int64_t likely = 0;
    if (at == end || *at != '{')
        return 0;
    at = skip_space(at + 1, end);
    int is_empty = at < end && *at == '}';
    while (!is_empty) {
        if (at == end || *at != '"')
            return 0;
        int64_t index = field_at(++at, end, fields, count, likely);
        at = index < count ? at + fields[index].name_size + 1 : skip_name(at, end);
        if (at == NULL || (index < count && seen >> index & 1))
            return 0;
        at = skip_space(at, end);
        if (at == end || *at != ':')
            return 0;
        at = skip_space(at + 1, end);
        at = index < count ? scan_value(at, end, &fields[index], row) : skip_value(at, end);
        if (at == NULL)
            return 0;
        if (index < count) {
            seen |= (uint64_t)1 << index;
            likely = index + 1 < count ? index + 1 : 0;
        }
        at = skip_space(at, end);
        if (at == end)
            return 0;
        if (*at == '}')
            break;
        if (*at != ',')
            return 0;
        at = skip_space(at + 1, end);
    }
    if (end - at != 1 || *at != '}')
        return 0;
    for (int64_t index = 0; index < count; index++) {
        if (seen >> index & 1)
            continue;
        if (!fields[index].is_null_if_missing)
            return 0;
        end_value(&fields[index], row, 0);
    }
    return 1;
}

/* Decodes lines into the columns of up to 64 fields. Returns the number of decoded lines: fewer than `count` if it refuses the next one. */
int64_t penstock_decode_columns(const uint8_t *lines, const int64_t *starts, const int64_t *ends, int64_t count, field_t *fields, int64_t field_count) {
    for (int64_t row = 0; row < count; row++)
        if (!decode_line(lines + starts[row], lines + ends[row], fields, field_count, row))
            return row;
    return count;
}

static uint8_t *put(uint8_t *to, const void *bytes, size_t size) {
    memcpy(to, bytes, size);
    return to + size;
}

static uint8_t *put_integer(uint8_t *to, int64_t value) {
    char digits[20];
    int at = sizeof digits;
    uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
    do
        digits[--at] = (char)('0' + rest % 10);
    while (rest /= 10);
    if (value < 0)
        *to++ = '-';
    return put(to, digits + at, sizeof digits - (size_t)at);
}

/* Writes a byte that cannot stand for itself in a string. */
static uint8_t *put_escape(uint8_t *to, uint8_t byte) {
    static const char BYTES[] = "\"\\\b\f\n\r\t", NAMES[] = "\"\\bfnrt", HEX[] = "0123456789abcdef";
    const char *found = byte ? strchr(BYTES, byte) : NULL;
    *to++ = '\\';
    if (found != NULL) {
        *to++ = (uint8_t)NAMES[found - BYTES];
        return to;
    }
    to = put(to, "u00", 3);
    *to++ = (uint8_t)HEX[byte >> 4];
    *to++ = (uint8_t)HEX[byte & 15];
    return to;
}

static uint8_t *put_text(uint8_t *to, place_t at, place_t end) {
    *to++ = '"';
    for (place_t plain = at; ; at++) {
        if (at < end && *at != '"' && *at != '\\' && *at >= ' ')
            continue;
        to = put(to, plain, (size_t)(at - plain));
        if (at == end)
            break;
        to = put_escape(to, *at);
        plain = at + 1;
    }
    *to++ = '"';
    return to;
}

static uint8_t *put_value(uint8_t *to, const field_t *field, int64_t row) {
    if (field->is_valid != NULL && !field->is_valid[row])
        return put(to, "null", 4);
    switch (field->kind) {
    case TEXT:
        return put_text(to, field->text + field->text_ends[row], field->text + field->text_ends[row + 1]);
    case INTEGER:
        return put_integer(to, field->integers[row]);
    case REAL: /* encoded by the caller, each with a newline */
        return put(to, field->text + field->text_ends[row], (size_t)(field->text_ends[row + 1] - field->text_ends[row] - 1));
    default:
        return field->booleans[row] ? put(to, "true", 4) : put(to, "false", 5);
    }
}

/* Encodes columns to one line of JSON for each row, as compact as msgspec's. Returns the size of all lines. */
int64_t penstock_encode_columns(const field_t *fields, int64_t field_count, int64_t count, uint8_t *to) {
    const uint8_t *begin = to;
    for (int64_t row = 0; row < count; row++) {
        *to++ = '{';
        for (int64_t index = 0; index < field_count; index++) {
            if (index)
                *to++ = ',';
            *to++ = '"';
            to = put(to, fields[index].name, (size_t)fields[index].name_size);
            to = put(to, "\":", 2);
            to = put_value(to, &fields[index], row);
        }
        *to++ = '}';
        *to++ = '\n';
    }
    return to - begin;
}
