/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h -- checks names, because names are written to terminals and files. */
#ifndef CGP_SRC_UTF8_H
#define CGP_SRC_UTF8_H

#include <stdbool.h>

/* Return true if a text is UTF-8 without control characters. */
bool cgp__is_name(const char *text);

#endif
