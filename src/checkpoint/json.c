/* json.c -- a JSON text as jansson's values, and back.
 *
 * Jansson's own reader and json_dumps() do not survive want of memory: what their buffers have no
 * room for (the end of a string; a key) is dropped, and nobody notices. Here a text gets one
 * buffer before it is read, as long as itself, and values are made by those of jansson's functions
 * that tell when they fail; and the length of a text is known before it is written.
 *
 * Not recursive: open objects and arrays are on a stack. Where an object waits for the value of
 * a key, it has null there already.
 *
 *     {"a": [1, {"b":        open: {a} [1] {b}      waits: a, -, b */
#include "checkpoint/parts.h"

#include "base/base.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64 };

typedef struct reader {
    const char *text;
    size_t length, at;
    char *buffer; /* [length + 1] the string or number just read, ended by a 0 */
    size_t used;
    json_t *open[DEEPEST];
    void *waits
        [DEEPEST]; /* the member of an object that has no value yet, as jansson's iterator */
    int depth;
    json_t *root;
    const char *reason; /* NULL: memory was short */
} reader;

/* --- UTF-8 --- */

/* Bytes of the character at the beginning of a text, 0 if there is none. */
static size_t character_bytes(const unsigned char *text, size_t length) {
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned first = text[0];
    const size_t n = first < 0x80   ? 1
                     : first < 0xC2 ? 0
                     : first < 0xE0 ? 2
                     : first < 0xF0 ? 3
                                    : 4;
    if (n <= 1) return n;
    if (first > 0xF4 || n > length) return 0;
    uint32_t code = first & (0x7Fu >> n);
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xC0u) != 0x80) return 0;
        code = code << 6 | (text[i] & 0x3Fu);
    }
    const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
    return code < least[n] || code > 0x10FFFF || surrogate ? 0 : n;
}

bool cgp__is_utf8(const char *text) {
    size_t length = strlen(text);
    while (length > 0) {
        const size_t n = character_bytes((const unsigned char *)text, length);
        if (n == 0) return false;
        text += n;
        length -= n;
    }
    return true;
}

/* --- tokens --- */

static bool wrong(reader *r, const char *reason) {
    r->reason = reason;
    return false;
}

static int peek(const reader *r) {
    return r->at < r->length ? (unsigned char)r->text[r->at] : -1;
}

static int peek_token(reader *r) {
    while (r->at < r->length && strchr(" \t\r\n", r->text[r->at]) && r->text[r->at])
        r->at++;
    return peek(r);
}

/* Four hexadecimal digits; -1 if there are none. */
static int read_hex(reader *r) {
    int value = 0;
    for (int i = 0; i < 4; i++, r->at++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF", *digit = NULL;
        if (peek(r) > 0) digit = strchr(digits, peek(r));
        if (!digit) return -1;
        value = 16 * value + (int)(digit - digits) % 16;
    }
    return value;
}

static void put_character(reader *r, uint32_t code) {
    static const unsigned char marks[] = {0, 0, 0xC0, 0xE0, 0xF0};
    const int n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = n - 1; i > 0; i--, code >>= 6)
        r->buffer[r->used + (size_t)i] = (char)(0x80 | (code & 0x3F));
    r->buffer[r->used] = (char)(marks[n == 1 ? 0 : n] | code);
    r->used += (size_t)n;
}

/* After "\u". */
static bool read_unicode(reader *r) {
    int code = read_hex(r);
    if (code < 0) return wrong(r, "an escape without four digits");
    if (code == 0) return wrong(r, "a character of number 0");
    if (code >= 0xDC00 && code <= 0xDFFF) return wrong(r, "half a surrogate pair");
    if (code >= 0xD800 && code <= 0xDBFF) {
        if (r->length - r->at < 2 || memcmp(r->text + r->at, "\\u", 2) != 0)
            return wrong(r, "half a surrogate pair");
        r->at += 2;
        const int low = read_hex(r);
        if (low < 0xDC00 || low > 0xDFFF) return wrong(r, "half a surrogate pair");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    put_character(r, (uint32_t)code);
    return true;
}

static bool read_escape(reader *r) {
    static const char letters[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const int letter = peek(r);
    const char *known = letter > 0 ? strchr(letters, letter) : NULL;
    if (letter != 'u' && !known) return wrong(r, "an unknown escape");
    r->at++;
    if (letter == 'u') return read_unicode(r);
    r->buffer[r->used++] = meant[known - letters];
    return true;
}

/* A string, to the buffer. No escape is shorter than what it stands for. */
static bool read_string(reader *r) {
    if (peek(r) != '"') return wrong(r, "expected a string");
    r->used = 0;
    for (r->at++; peek(r) != '"';) {
        if (peek(r) < 0) return wrong(r, "ends in a string");
        if (peek(r) < 0x20) return wrong(r, "a control character in a string");
        if (peek(r) == '\\') {
            r->at++;
            if (!read_escape(r)) return false;
            continue;
        }
        const size_t n =
            character_bytes((const unsigned char *)r->text + r->at, r->length - r->at);
        if (n == 0) return wrong(r, "not UTF-8");
        memcpy(r->buffer + r->used, r->text + r->at, n);
        r->used += n;
        r->at += n;
    }
    r->at++;
    r->buffer[r->used] = '\0';
    return true;
}

/* One digit or more, to the buffer. */
static bool read_digits(reader *r) {
    const size_t before = r->used;
    while (peek(r) >= '0' && peek(r) <= '9')
        r->buffer[r->used++] = r->text[r->at++];
    return r->used > before || wrong(r, "expected a digit");
}

static json_t *make_number(reader *r, bool whole) {
    errno = 0;
    r->buffer[r->used] = '\0';
    const long long integer = whole ? strtoll(r->buffer, NULL, 10) : 0;
    const double real = whole ? 0 : strtod(r->buffer, NULL);
    if ((whole && errno == ERANGE) || !isfinite(real)) {
        (void)wrong(r, "a number out of range");
        return NULL;
    }
    return whole ? json_integer(integer) : json_real(real);
}

static json_t *read_number(reader *r) {
    bool whole = true;
    r->used = 0;
    if (peek(r) == '-') r->buffer[r->used++] = r->text[r->at++];
    const size_t first = r->used;
    if (!read_digits(r)) return NULL;
    if (r->buffer[first] == '0' && r->used > first + 1) {
        (void)wrong(r, "a number with a leading 0");
        return NULL;
    }
    if (peek(r) == '.') {
        whole = false;
        r->buffer[r->used++] = r->text[r->at++];
        if (!read_digits(r)) return NULL;
    }
    if (peek(r) == 'e' || peek(r) == 'E') {
        whole = false;
        r->buffer[r->used++] = r->text[r->at++];
        if (peek(r) == '+' || peek(r) == '-') r->buffer[r->used++] = r->text[r->at++];
        if (!read_digits(r)) return NULL;
    }
    return make_number(r, whole);
}

/* --- values --- */

/* Give a value its place, in what is open or as the root, and take it. NULL: it was not made. */
static bool put_value(reader *r, json_t *value) {
    json_t *in = r->depth > 0 ? r->open[r->depth - 1] : NULL;
    if (!value) return false;
    if (in && json_is_array(in)) return json_array_append_new(in, value) == 0;
    if (in) return json_object_iter_set_new(in, r->waits[r->depth - 1], value) == 0;
    r->root = value;
    return true;
}

static bool open_value(reader *r, json_t *(*make)(void)) {
    if (r->depth == DEEPEST) return wrong(r, "nested too deep");
    json_t *value = make();
    if (!put_value(r, value)) return false;
    r->open[r->depth++] = value;
    r->at++;
    return true;
}

static bool read_word(reader *r, const char *word, json_t *value) {
    const size_t n = strlen(word);
    if (r->length - r->at < n || memcmp(r->text + r->at, word, n) != 0)
        return wrong(r, "expected a value");
    r->at += n;
    return put_value(r, value);
}

/* A value, or the beginning of an object or array. */
static bool read_value(reader *r) {
    const int first = peek_token(r);
    switch (first) {
    case '{':
        return open_value(r, json_object);
    case '[':
        return open_value(r, json_array);
    case '"':
        return read_string(r) && put_value(r, json_stringn_nocheck(r->buffer, r->used));
    case 't':
        return read_word(r, "true", json_true());
    case 'f':
        return read_word(r, "false", json_false());
    case 'n':
        return read_word(r, "null", json_null());
    default:
        if (first == '-' || (first >= '0' && first <= '9')) return put_value(r, read_number(r));
        return wrong(r, first < 0 ? "ends where a value is expected" : "expected a value");
    }
}

/* A key, which waits for its value. */
static bool read_key(reader *r) {
    json_t *object = r->open[r->depth - 1];
    if (!read_string(r)) return false;
    if (json_object_get(object, r->buffer)) return wrong(r, "duplicate object key");
    if (json_object_set_new_nocheck(object, r->buffer, json_null())) return false;
    r->waits[r->depth - 1] = json_object_iter_at(object, r->buffer);
    if (peek_token(r) != ':') return wrong(r, "expected a colon");
    r->at++;
    return true;
}

static bool read_text(reader *r) {
    if (!read_value(r)) return false;
    for (bool fresh = true; r->depth > 0;) { /* just opened: no comma */
        const bool object = json_is_object(r->open[r->depth - 1]);
        const int token = peek_token(r), depth = r->depth;
        if (token == (object ? '}' : ']')) {
            fresh = false;
            r->at++;
            r->depth--;
            continue;
        }
        if (!fresh && token != ',')
            return wrong(r, token < 0 ? "ends too early"
                                      : "expected a comma or the end of a list");
        if (!fresh) r->at++;
        if (object && peek_token(r) >= 0 && !read_key(r)) return false;
        if (!read_value(r)) return false;
        fresh = r->depth > depth;
    }
    return peek_token(r) < 0 || wrong(r, "goes on after its end");
}

json_t *cgp__json_read(const char *text, size_t length, cgp__json_error *error) {
    reader r = {.text = text, .length = length, .buffer = cgp__calloc(length + 1, 1)};
    const bool done = r.buffer && read_text(&r);
    free(r.buffer);
    *error = (cgp__json_error){r.at, r.reason};
    if (done) return r.root;
    json_decref(r.root);
    return NULL;
}

char *cgp__json_text(const json_t *json, size_t flags) {
    const size_t length = json_dumpb(json, NULL, 0, flags); /* it may lack memory, too */
    char *text = length > 0 ? cgp__calloc(length + 1, 1) : NULL;
    if (text && json_dumpb(json, text, length, flags) == length) return text;
    free(text);
    return NULL;
}
