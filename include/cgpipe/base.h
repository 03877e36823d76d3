/* SPDX-License-Identifier: Apache-2.0 */
/* base.h -- status codes, error messages, log level, version. Read this header first.
 *
 * Pointers: a function first checks its arguments for NULL. Unless its comment allows NULL, it
 * returns CGP_EINVAL, and the message names the function and the parameter. Functions without a
 * status return 0, NULL, -1, NaN or an invalid value instead. cgp_..._destroy(), _close(),
 * _abandon() and _release() accept NULL. A pointer to an array may be NULL if its length is 0.
 *
 * fork(): a child must not use objects that own threads: a pipeline, or a data set with prefetching
 * threads. In the child, a call that destroys such an object returns at once and frees nothing; any
 * other call on it returns CGP_ESTATE. A file that is being written belongs to the process that
 * created it. */
#ifndef CGPIPE_BASE_H
#define CGPIPE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CGP_VERSION "0.1.0"

#ifndef CGP_API
#define CGP_API __attribute__((visibility("default")))
#endif
#define CGP_MUST_CHECK __attribute__((warn_unused_result))
#define CGP_PRINTF(text, first) __attribute__((format(printf, text, first)))

/** Result of every call that can fail. A call that returns any code except CGP_OK also sets the
 *  message that cgp_message() returns. */
typedef enum cgp_status {
    CGP_OK = 0,
    CGP_EINVAL,   /**< An argument, option or input is wrong; nothing was changed. */
    CGP_ENOMEM,   /**< Out of memory. */
    CGP_ELIMIT,   /**< A plan needs more memory than a device has. */
    CGP_EIO,      /**< A file could not be opened, read, written or renamed. */
    CGP_EFORMAT,  /**< A file was read, but it is damaged or has another format. */
    CGP_ESTATE,   /**< The call is not legal in this state; the message names the call to make. */
    CGP_EDEVICE,  /**< A device failed while running a step. */
    CGP_EPEER,    /**< Another rank failed; the message comes from that rank. */
    CGP_EDIFFERS, /**< A step differs from its replay; the message names the device, if known. */
} cgp_status;

/**
 * Return the message of the last failure on the calling thread, or "" if there was none.
 *
 * A message has the form `object: expectation, got value (hint)`. It is borrowed, and valid until
 * the next failure on this thread.
 *
 * Threads: each thread has its own message.
 */
CGP_API const char *cgp_message(void);

/** Return the name of a status, such as "CGP_EINVAL". The string is static. Threads: any. */
CGP_API const char *cgp_status_name(cgp_status status);

/**
 * Record a failure on the calling thread and return its status.
 *
 * This function is for code that uses the library, such as models and programs.
 *
 * @param[in] status  Any status but CGP_OK.
 * @param[in] format  printf format of the message, `object: expectation, got value (hint)`.
 *                    Borrowed.
 * @return    `status`.
 *
 * Threads: any.
 */
CGP_API cgp_status cgp_fail(cgp_status status, const char *format, ...) CGP_PRINTF(2, 3);

/**
 * Return the entry of names[count] nearest to `text`, or NULL if none is near. Messages use it for
 * "did you mean".
 *
 * The distance is the number of insertions, deletions, replacements and swaps of adjacent
 * characters; case is ignored, and `_` equals `-`. A name is near if the distance is at most a
 * third of the longer word's length (at most 1 if that length is 2 or 3). The result is borrowed
 * from `names`. Threads: any.
 */
CGP_API const char *cgp_nearest(const char *text, const char *const *names, int count);

/**
 * Write a number of bytes with a suitable unit ("512 B", "743.9 KiB", "1.25 GiB") to `text`, a
 * buffer of `size` bytes.
 *
 * Units are B, KiB, MiB, GiB and TiB. For numbers below 1024 TiB, the result has at most 10
 * characters. It is cut to fit if `size` is too small. Returns `text`, or NULL if `text` is NULL.
 * Threads: any.
 */
CGP_API char *cgp_bytes_text(int64_t bytes, char *text, size_t size);

/**
 * Copy `text` to `out`, a buffer of `size` bytes, and make it safe for a terminal: control
 * characters, and bytes that are not UTF-8, become `\\xNN`. If `out` is too short, the text is cut
 * between two characters. Failure messages and log lines are escaped already.
 *
 * @return `out`; NULL if `text` or `out` is NULL.
 *
 * Threads: any.
 */
CGP_API char *cgp_escape(const char *text, char *out, size_t size);

/** Pass a failure on to the caller. */
#define CGP_TRY(expression)                                                                        \
    do {                                                                                           \
        const cgp_status cgp_try_status_ = (expression);                                           \
        if (cgp_try_status_ != CGP_OK) return cgp_try_status_;                                     \
    } while (0)

/** Verbosity of the log on standard error. CGP_LOG=error|warn|info|debug sets it at the first
 *  use. */
typedef enum cgp_log_level {
    CGP_LOG_ERROR,
    CGP_LOG_WARN,
    CGP_LOG_INFO,
    CGP_LOG_DEBUG
} cgp_log_level;

/** Set the log level of the process. The default comes from the environment variable CGP_LOG or, if
 *  it is not set, is CGP_LOG_WARN. Threads: any. */
CGP_API void cgp_log_set_level(cgp_log_level level);

/** Write one line to standard error, "cgpipe: [module] text", unless `level` is above the log
 *  level. A line of level CGP_LOG_WARN is marked as a warning. The library writes to no other
 *  stream.
 *  @param[in] module The word in brackets, such as "data". Borrowed. Threads: any. */
CGP_API void cgp_log(cgp_log_level level, const char *module, const char *format, ...)
    CGP_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif
#endif
