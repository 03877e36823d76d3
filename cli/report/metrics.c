/* SPDX-License-Identifier: Apache-2.0 */
/* metrics.c -- see metrics.h. */
#include "report/metrics.h"

#include "session/run_directory.h"
#include "text.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONGEST_LINE = 4096 };

static cgp_status unwritable(const cli_metrics *metrics) {
    return cgp_fail(CGP_EIO, "%s: cannot be written (%s)", metrics->path, strerror(errno));
}

/* Read a line, or the first part of a long line. Return its length; 0: end of file. */
static size_t read_line(char line[LONGEST_LINE], FILE *file) {
    size_t length = 0;
    for (int c = 0; c != '\n' && length < LONGEST_LINE - 1 && (c = getc(file)) != EOF;)
        line[length++] = (char)c;
    line[length] = '\0';
    return length;
}

/* Return the step of a line of `length` bytes. Return 0 if cgpipe did not write the line, or if the
 * line is cut off or too long. Also return 0 if the line contains zero bytes: the machine crashed
 * before the line was on disk. */
static int64_t step_of(const char *line, size_t length) {
    int64_t step = 0;
    if (length < 3 || memchr(line, 0, length)) return 0;
    if (strcmp(line + length - 2, "}\n") != 0) return 0;
    return sscanf(line, "{\"step\":%" SCNd64, &step) == 1 ? step : 0;
}

/* Find the last line to keep, and return the offset of its end. The kept lines have ascending steps
 * of at most `step`. */
static off_t kept(cli_metrics *metrics, int64_t step) {
    char line[LONGEST_LINE];
    off_t end = 0;
    for (size_t length; (length = read_line(line, metrics->file)) > 0;) {
        const int64_t found = step_of(line, length);
        if (found <= metrics->last || found > step) break;
        metrics->last = found;
        end += (off_t)length;
    }
    return end;
}

cgp_status cli_metrics_open(cli_metrics *metrics, const cli_run_directory *directory,
                            int64_t step) {
    int fd = -1;
    *metrics = (cli_metrics){.path = directory->metrics};
    CGP_TRY(cli_run_directory_unshare(directory, CLI_METRICS));
    CGP_TRY(cli_run_directory_open(directory, CLI_METRICS, O_RDWR | O_CREAT, &fd));
    /* Do not use append mode, because cli_metrics_add() overwrites the end. */
    metrics->file = fdopen(fd, "r+");
    if (!metrics->file) {
        const cgp_status status = unwritable(metrics);
        close(fd);
        return status;
    }
    rewind(metrics->file);
    /* The kept lines stay in place, so that only the file's length changes. */
    if (ftruncate(fileno(metrics->file), kept(metrics, step)) != 0 ||
        fseek(metrics->file, 0, SEEK_END) != 0)
        return unwritable(metrics);
    return cli_metrics_sync(metrics);
}

cgp_status cli_metrics_log(cli_metrics *metrics, json_t *line) {
    const bool good = json_dumpf(line, metrics->file, JSON_COMPACT) == 0 &&
                      fputc('\n', metrics->file) != EOF && fflush(metrics->file) == 0;
    metrics->last = json_integer_value(json_object_get(line, "step"));
    const cgp_status status =
        good ? cli_events_write(&metrics->events, metrics->last, line) : unwritable(metrics);
    json_decref(line);
    return status;
}

static bool write_at(int fd, const char *bytes, size_t count, off_t at) {
    for (ssize_t done; count > 0; bytes += done, at += done, count -= (size_t)done) {
        done = pwrite(fd, bytes, count, at);
        if (done < 0 && errno != EINTR) return false;
        if (done < 0) done = 0;
    }
    return true;
}

/* Replace "}\n" at the end of the file by ",MEMBERS}\n". */
cgp_status cli_metrics_add(cli_metrics *metrics, json_t *members) {
    const int fd = fileno(metrics->file);
    const off_t end = ftello(metrics->file);
    char *dump = json_dumps(members, JSON_COMPACT), *text = cli_text("%s\n", dump ? dump : "{}");
    text[0] = ',';
    const int reason = write_at(fd, text, strlen(text), end - 2) ? 0 : errno;
    if (reason && write_at(fd, "}\n", 2, end - 2)) (void)!ftruncate(fd, end);
    free(text);
    free(dump);
    errno = reason;
    cgp_status status = CGP_OK;
    if (reason || fseek(metrics->file, 0, SEEK_END) != 0) status = unwritable(metrics);
    if (status == CGP_OK) status = cli_events_write(&metrics->events, metrics->last, members);
    json_decref(members);
    return status;
}

cgp_status cli_metrics_sync(cli_metrics *metrics) {
    if (fflush(metrics->file) != 0 || fsync(fileno(metrics->file)) != 0) return unwritable(metrics);
    return cli_events_sync(&metrics->events);
}

void cli_metrics_close(cli_metrics *metrics) {
    cli_events_close(&metrics->events);
    if (metrics->file) fclose(metrics->file);
    *metrics = (cli_metrics){0};
}
