/* SPDX-License-Identifier: Apache-2.0 */
/* text.h -- memory, texts, and numbers as texts. */
#ifndef CGPIPE_CLI_TEXT_H
#define CGPIPE_CLI_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Return zeroed memory. If memory runs out, the program ends. (The library itself never ends the
 * process.) */
void *cli_calloc(size_t count, size_t bytes);

/* Return a new text, printed as by printf(). The caller frees it. */
char *cli_text(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Return texts joined by commas. The caller frees it. */
char *cli_joined(const char *const *texts, int count);

/* Return a text quoted as one word of a shell. The caller frees it. */
char *cli_shell_word(const char *text);

/* Return a text in which `by` replaces each occurrence of `what`. The caller frees it. */
char *cli_replaced(const char *text, const char *what, const char *by);

/* Tell whether a text is longer than `ending` and ends with it, as "a.bin" ends with ".bin". */
bool cli_ends_with(const char *text, const char *ending);

/* Return a user's text escaped for a terminal, "" for NULL. The result is in one of four static
 * buffers, which are used cyclically. */
const char *cli_shown(const char *text);

#define CLI_NUMBER 32 /* size in bytes of a buffer that holds a number as text */

/* Return the value for display: a NaN loses its sign, which has no meaning. */
double cli_plain(double value);

/* Write "89,762,304" to `text` and return it. */
char *cli_grouped(int64_t value, char text[CLI_NUMBER]);

/* Write the shortest text that reads back as the value. */
void cli_real_text(double value, char text[CLI_NUMBER]);

/* Parse the whole text strictly: spaces, other characters and overflow are errors. */
bool cli_parse_whole(const char *text, int64_t min, int64_t max, int64_t *out);
bool cli_parse_real(const char *text, double min, double below, double *out);
/* Like cli_parse_whole(), but accepts a suffix for powers of 1024: K, M, G, T or KiB .. TiB. */
bool cli_parse_bytes(const char *text, int64_t min, int64_t max, int64_t *out);

#endif
