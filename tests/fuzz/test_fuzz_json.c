/* test_fuzz_json.c -- our reader of JSON texts, and our look at UTF-8, against jansson's own,
 * which may be believed while there is memory. */
#include "support.h"

#include "checkpoint/parts.h"

enum { TEXTS = 40000, MOST = 400 };

static const char *const seeds[] = {
    "{\"a\": [1, -2, 0, 12345678901234567], \"b\": {\"c\": \"text\", \"\": null}, \"d\": true}",
    "[\"\\\"\\\\\\/\\b\\f\\n\\r\\t\", \"\\u00e9\\ud83d\\ude00\\uFFFF\", "
    "\"\xc3\xa9\xf0\x9f\x98\x80\"]",
    "{\"x\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},\"__metadata__\":{}}",
    " [ 1.5 , -0.25e-3 , 1E+2 , 0e0, [ ] , { } , false ] ",
    "[[[[[[1]]]]], {\"a\":{\"a\":{\"a\":[{}]}}}, \"\", 9223372036854775807, "
    "-9223372036854775808]",
};

/* Pieces that make a text wrong, or right in another way. */
static const char *const pieces[] = {"\"",
                                     "{",
                                     "}",
                                     "[",
                                     "]",
                                     ",",
                                     ":",
                                     "\\",
                                     "\\u",
                                     "\\u0000",
                                     "\\ud800",
                                     "\\udc00",
                                     "d83d",
                                     "0",
                                     "00",
                                     "-",
                                     ".",
                                     "e",
                                     "E+",
                                     "1e999",
                                     "99999999999999999999",
                                     "true",
                                     "nul",
                                     "\x01",
                                     "\xff",
                                     "\xc0\x80",
                                     "\xed\xa0\x80",
                                     "\xf4\x90\x80\x80",
                                     "\xe2\x82",
                                     "\n",
                                     "\t",
                                     "\"a\":",
                                     "/",
                                     "\x7f"};

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static int draw_text(char text[MOST + 64], uint64_t *state) {
    int length = snprintf(text, MOST, "%s", seeds[test_between(state, 0, COUNT(seeds) - 1)]);
    for (int changes = test_between(state, 0, 3); changes > 0; changes--) {
        const int at = test_between(state, 0, length);
        const int out = test_between(state, 0, length - at < 3 ? length - at : 3);
        const char *in = pieces[test_between(state, 0, COUNT(pieces) - 1)];
        const int more = test_between(state, 0, 2) ? (int)strlen(in) : 0;
        if (length - out + more > MOST) continue;
        memmove(text + at + more, text + at + out, (size_t)(length - at - out));
        memcpy(text + at, in, (size_t)more);
        length += more - out;
    }
    return length;
}

static void texts_are_read_as_jansson_reads_them(void **unused) {
    (void)unused;
    uint64_t state = test_seed();
    int accepted = 0;
    for (int i = 0; i < TEXTS; i++) {
        char text[MOST + 64];
        cgp__json_error error;
        const int length = draw_text(text, &state);
        json_t *ours = cgp__json_read(text, (size_t)length, &error);
        json_t *theirs = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, NULL);
        if (ours ? !json_equal(ours, theirs)
                 : theirs || !error.reason || error.byte > (size_t)length) {
            print_error("\"%.*s\": %s, jansson %s\n", length, text,
                        ours ? "accepted" : error.reason, theirs ? "accepts" : "refuses");
            fail();
        }
        accepted += ours != NULL;
        json_decref(theirs);
        json_decref(ours);
    }
    print_message("%d of %d texts were accepted\n", accepted, TEXTS);
    assert_in_range(accepted, TEXTS / 10, TEXTS * 9 / 10);
}

static void texts_are_written_as_jansson_writes_them(void **unused) {
    (void)unused;
    for (int i = 0; i < COUNT(seeds); i++) {
        cgp__json_error error;
        json_t *json = cgp__json_read(seeds[i], strlen(seeds[i]), &error);
        assert_non_null(json);
        char *ours = cgp__json_text(json, JSON_INDENT(1));
        char *theirs = json_dumps(json, JSON_INDENT(1));
        assert_string_equal(ours, theirs);
        free(theirs);
        free(ours);
        json_decref(json);
    }
}

/* First bytes and following ones, at the borders of what may follow each other. */
static void utf8_is_what_jansson_takes_for_it(void **unused) {
    static const char first[] = "\x41\xC1\xC2\xDF\xE0\xE1\xED\xEE\xEF\xF0\xF1\xF4\xF5",
                      next[] = "\x80\x8F\x90\x9F\xA0\xBF\xC0\x7F";
    (void)unused;
    uint64_t state = test_seed();
    int accepted = 0;
    for (int i = 0; i < TEXTS; i++) {
        char text[8] = "";
        const int n = test_between(&state, 0, 6);
        for (int k = 0; k < n; k++)
            text[k] = k == 0 || test_between(&state, 0, 3) == 0
                          ? first[test_between(&state, 0, COUNT(first) - 2)]
                          : next[test_between(&state, 0, COUNT(next) - 2)];
        json_t *theirs = json_string(text);
        if (cgp__is_utf8(text) != (theirs != NULL)) {
            for (int k = 0; text[k]; k++)
                print_error("%02x ", (unsigned char)text[k]);
            print_error(": %d, jansson %d\n", cgp__is_utf8(text), theirs != NULL);
            fail();
        }
        accepted += theirs != NULL;
        json_decref(theirs);
    }
    print_message("%d of %d texts were accepted\n", accepted, TEXTS);
    assert_in_range(accepted, TEXTS / 20, TEXTS / 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(texts_are_read_as_jansson_reads_them),
        cmocka_unit_test(texts_are_written_as_jansson_writes_them),
        cmocka_unit_test(utf8_is_what_jansson_takes_for_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
