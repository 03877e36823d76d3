/* SPDX-License-Identifier: Apache-2.0 */
/* test_io_failures.c -- run the program with a fault: one file call fails, or kills the process
 * (tests/support/fail_calls.c). In each run, the fault is in call number n of one kind of call. The
 * runs cover every n, kind and error. Then run the program again without a fault.
 *
 *     before       undisturbed     fault                      again
 *     ──────► copy ──────────► expected
 *     ──────► copy ──────────────────X  succeeds, or       ──► expected: the same files and bytes
 *                                       names file and
 *                                       reason, or is killed
 *
 * CGP_TEST_FAULTS=all             every case of all scenarios
 *                 =overwrite      every case of the scenario "overwrite"
 *                 =start:write:17:KILL   only that case; prints the program's output
 * Without CGP_TEST_FAULTS, a random fifth of the cases runs. CGP_TEST_SCALE multiplies this number
 * of cases, and CGP_TEST_SEED is the seed of the draw. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw, asprintf */
#endif
#include "directory.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <jansson.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MODEL "gpt2:layers=1,width=4,heads=1,seq=4"
#define TRAIN                                                                                      \
    "train " MODEL " --data ../text.txt --batch 2 --validation 0 --dropout 0.1 --save-every 1 "    \
    "--digest-every 1"

enum { WORDS = 32, CAPACITY = 1 << 16, PERMILLE = 200, SHOWN = 2000 };

typedef struct scenario scenario;

/* A function that checks the files after a fault. It returns what is wrong, or NULL if nothing is
 * wrong. `code` is the program's exit code. */
typedef const char *look(const char *fault, int code);

struct scenario {
    const char *name;
    const char *before[4]; /* commands that make the initial files; NULL-terminated */
    void (*leave)(void);   /* creates leftovers of dead processes, or NULL */
    const char *command, *again;
    look *after; /* checks the files after a fault; may be NULL */
    int code;    /* exit code without a fault; if 1, the command changes nothing */
    int refusal; /* another exit code that a fault may have, for samples that cannot be read */
};

static char work[64];                    /* the test's directory, on a tmpfs if there is one */
static const char *faults;               /* the value of CGP_TEST_FAULTS */
static uint64_t draw;                    /* state of the random generator */
static int cases, failures, outcomes[3]; /* counts: succeeded, refused, killed */
static char output[CAPACITY], errors[CAPACITY];

/* --- files --- */

static const char *in_work(const char *name) {
    static char paths[8][512];
    static int turn;
    char *path = paths[turn++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", work, name);
    return path;
}

/* Return the content of a file, zero-terminated, or NULL if there is no such file. The caller frees
 * it. */
static char *slurp(const char *path, size_t *size) {
    struct stat info;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return NULL;
    assert_int_equal(fstat(fd, &info), 0);
    char *bytes = malloc((size_t)info.st_size + 1);
    *size = (size_t)info.st_size;
    assert_int_equal(read(fd, bytes, *size), *size);
    bytes[*size] = '\0';
    close(fd);
    return bytes;
}

static int remove_one(const char *path, const struct stat *info, int type, struct FTW *walk) {
    (void)info, (void)type, (void)walk;
    return remove(path);
}

static void remove_tree(const char *path) {
    nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static const char *copied_from, *copied_to;

static int copy_one(const char *path, const struct stat *info, int type, struct FTW *walk) {
    char to[1024], target[256];
    (void)walk;
    snprintf(to, sizeof to, "%s%s", copied_to, path + strlen(copied_from));
    if (type == FTW_D) return mkdir(to, 0777);
    if (type == FTW_SL) {
        const ssize_t length = readlink(path, target, sizeof target - 1);
        target[length > 0 ? length : 0] = '\0';
        return symlink(target, to);
    }
    size_t size = 0;
    char *bytes = slurp(path, &size);
    assert_int_equal(size, info->st_size);
    test_write_file(to, bytes, size);
    free(bytes);
    return 0;
}

static void copy_tree(const char *from, const char *to) {
    remove_tree(to);
    copied_from = from;
    copied_to = to;
    assert_int_equal(nftw(from, copy_one, 16, FTW_PHYS), 0);
}

/* --- the program --- */

static void read_text(const char *path, char text[CAPACITY]) {
    size_t size = 0;
    char *bytes = slurp(path, &size);
    snprintf(text, CAPACITY, "%s", bytes ? bytes : "");
    free(bytes);
}

static void become_program(const char *directory, const char *command, const char *fault) {
    static char words[1024], below[128];
    char *argv[WORDS + 2] = {PROGRAM};
    int count = 1;
    snprintf(words, sizeof words, "%s", command);
    for (char *word = strtok(words, " "); word && count <= WORDS; word = strtok(NULL, " "))
        argv[count++] = word;
    snprintf(below, sizeof below, "%s/%s", work, directory);
    if (fault) {
        setenv("LD_PRELOAD", FAIL_CALLS, 1);
        setenv("FAIL_BELOW", below, 1);
        setenv("FAIL_CALL", fault, 1);
        setenv("FAIL_REPORT", in_work("report"), 1);
    }
    if (!freopen(in_work("stdout"), "w", stdout) || !freopen(in_work("stderr"), "w", stderr) ||
        chdir(below))
        _exit(99);
    alarm(60);
    execv(PROGRAM, argv);
    _exit(98);
}

/* Run `command` in a subdirectory of `work`; return its exit code, or 128 + the signal. */
static int run(const char *directory, const char *command, const char *fault) {
    int result = 0;
    unlink(in_work("report"));
    const pid_t child = fork();
    if (child == 0) become_program(directory, command, fault);
    assert_int_equal(waitpid(child, &result, 0), child);
    read_text(in_work("stdout"), output);
    read_text(in_work("stderr"), errors);
    return WIFEXITED(result) ? WEXITSTATUS(result) : 128 + WTERMSIG(result);
}

/* --- expectations --- */

/* Remove text that differs between runs. Each removed piece begins with `from` and ends before the
 * next character in `ends`. */
static void cut(char *text, const char *from, const char *ends) {
    for (char *at = text; (at = strstr(at, from));) {
        char *end = at + strlen(from);
        end += strcspn(end, ends);
        memmove(at, end, strlen(end) + 1);
    }
}

static json_t *parsed(const char *text) {
    json_t *root = json_loads(text, 0, NULL);
    return root ? root : json_null();
}

/* Compare two JSON texts: run.json, --json output or checkpoint.json. Leave out members that depend
 * on time, directory or the number of starts. */
static bool same_members(const char *one, const char *other) {
    static const char *const keys[] = {"model", "weights_sha256", "updates", "version",
                                       "step",  "dropout_step",   "files"};
    json_t *a = parsed(one), *b = parsed(other);
    bool same = json_is_object(a);
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        json_t *left = json_object_get(a, keys[i]), *right = json_object_get(b, keys[i]);
        same = same && (left == right || json_equal(left, right));
    }
    json_decref(a);
    json_decref(b);
    return same;
}

static bool ends_with(const char *text, const char *end) {
    const size_t length = strlen(text), part = strlen(end);
    return length >= part && strcmp(text + length - part, end) == 0;
}

static bool same_bytes(const char *path, char *one, size_t size, char *other, size_t other_size) {
    if (ends_with(path, "/metrics.jsonl")) {
        cut(one, ",\"seconds\":", "}\n");
        cut(other, ",\"seconds\":", "}\n");
        return strcmp(one, other) == 0;
    }
    if (ends_with(path, "/run.json") || ends_with(path, "/out.json") ||
        ends_with(path, "/checkpoint.json"))
        return same_members(one, other);
    if (ends_with(path, "/checkpoint.sha256"))
        return size == other_size; /* differs, because checkpoint.json differs */
    /* times differ */
    if (ends_with(path, "/trace.json") || ends_with(path, "/measured.json"))
        return json_is_object(parsed(one));
    if (ends_with(path, ".html")) return ends_with(one, "</html>\n");
    return size == other_size && memcmp(one, other, size) == 0;
}

static bool same_file(const char *path, const char *expected) {
    size_t size = 0, other_size = 0;
    char *one = slurp(path, &size), *other = slurp(expected, &other_size);
    const bool same = one && other && same_bytes(path, one, size, other, other_size);
    free(other);
    free(one);
    return same;
}

static const char *tree, *other_tree;
static char difference[700];
static enum {
    MORE,
    LESS
} asked;           /* what compare() looks for: extra entries of the result, or missing ones */
static bool again; /* true after the program's second start */

/* Return true if the result may have this extra entry. If a deletion fails, the entry remains until
 * a later start saves a checkpoint. */
static bool may_be_more(const char *path) {
    const char *step = strstr(path, "/step-");
    char latest[256] = "";
    if (!again &&
        (strstr(path, "/.cgpipe-") || strstr(path, "/.new") || strstr(path, "/.replaced")))
        return true;
    if (!step || readlink(in_work("expected/run/latest"), latest, sizeof latest - 1) < 0)
        return false;
    return strncmp(step + 1, latest, strlen(latest)) < 0;
}

/* Return true if the result may lack this entry. If the second start has no step to run, it writes
 * no trace. If the measured step or the report cannot be written, the training warns and
 * continues. */
static bool may_be_missing(const char *path) {
    const bool reported = ends_with(path, "/measured.json") || ends_with(path, "/report.html");
    if (reported && !again) return strstr(errors, "cgpipe: warning: ") != NULL;
    return again && ends_with(path, "/trace.json");
}

/* Compare one entry of `tree` with the entry of the same path in `other_tree`; note any difference.
 * (A callback of nftw.) */
static int compare_one(const char *path, const struct stat *info, int type, struct FTW *walk) {
    char there[1024], one[256] = "", other[256] = "";
    struct stat found;
    (void)walk, (void)info;
    snprintf(there, sizeof there, "%s%s", other_tree, path + strlen(tree));
    const bool exists = lstat(there, &found) == 0;
    const char *trouble = NULL;
    if (!exists && (asked == MORE ? may_be_more(path) : may_be_missing(path))) return 0;
    if (!exists)
        trouble = asked == MORE ? "is too many" : "is missing there";
    else if (type == FTW_SL && (readlink(path, one, 255) < 0 || readlink(there, other, 255) < 0 ||
                                strcmp(one, other) != 0))
        trouble = "leads elsewhere";
    else if (type == FTW_F && !same_file(path, there))
        trouble = "has other bytes";
    if (trouble) snprintf(difference, sizeof difference, "%s %s", path, trouble);
    return trouble ? 1 : 0;
}

static bool is_part(const char *one, const char *other) {
    tree = one;
    other_tree = other;
    return nftw(one, compare_one, 16, FTW_PHYS) == 0;
}

/* Compare both trees, in both directions. */
static const char *compare(const char *got, const char *expected) {
    asked = MORE;
    if (!is_part(got, expected)) return difference;
    asked = LESS;
    return is_part(expected, got) ? NULL : difference;
}

/* --- a fault --- */

/* Get the path of the failed call from the report of fail_calls, such as "failed start:..
 * /tmp/x/case/run/..". `path` becomes "" if the program never made the call. */
static void hit(char path[512]) {
    char line[CAPACITY];
    read_text(in_work("report"), line);
    *path = '\0';
    (void)sscanf(line, "failed %*s %511[^\n]", path);
}

/* Return true if the message names the file of the failed call. The first component of the path
 * below the test's directory is enough. For a temporary file, the message must name the file that
 * the temporary file would have replaced. */
static bool names_file(const char *path) {
    static const char *const beside[] = {
        "out.json", "trace.json", "tokens.bin", "weights.safetensors", "text.txt", "page.html"};
    char name[256] = "";
    const char *rest = path + strlen(in_work("case"));
    (void)sscanf(rest, "/%255[^/ ]", name);
    if (*name && *name != '.') return strstr(errors, name) != NULL;
    for (size_t i = 0; i < sizeof beside / sizeof beside[0]; i++) {
        if (strstr(errors, beside[i])) return true;
    }
    return strstr(errors, "run") || strstr(errors, "directory");
}

/* Return NULL if the message contains the system's reason and names the file. Exception: if stat()
 * of an entry fails, the program refuses the entry, and its message lacks the system's reason. */
static const char *says_why(const char *path, const char *fault) {
    const char *reason = strerror(strstr(fault, "ENOSPC") ? ENOSPC : EIO);
    if (!*errors) return "it fails without a word";
    if (strstr(errors, "has a run already")) return NULL; /* correct: there is a run */
    if (!strstr(errors, reason) && strncmp(fault, "stat:", 5) != 0)
        return "it does not say the reason";
    return names_file(path) ? NULL : "it does not name the file";
}

/* Run the program with a fault and then again without it. Return what is wrong, or NULL if nothing
 * is wrong. */
static const char *judge(const scenario *s, const char *fault) {
    char path[512];
    const int code = run("case", s->command, fault);
    hit(path);
    const bool killed = strstr(fault, "KILL") != NULL;
    if (!*path) return NULL; /* the program made fewer than n calls */
    cases++;
    outcomes[killed ? 2 : code ? 1 : 0]++;
    const bool refused = code <= 1 || (s->refusal && code == s->refusal);
    if (killed ? code != 128 + SIGKILL : !refused) return "it ends by another signal or code";
    if (code < s->code) return "it goes on where it should refuse";
    again = false;
    const char *trouble = code == 1 && s->code == 0 ? says_why(path, fault) : NULL;
    if (!trouble && code == s->code) trouble = compare(in_work("case"), in_work("expected"));
    if (!trouble && s->after) trouble = s->after(fault, code);
    if (trouble) return trouble;
    again = true;
    if (run("case", s->again, NULL) != s->code) return "the same once more fails";
    return compare(in_work("case"), in_work("expected"));
}

static void try_fault(const scenario *s, const char *fault) {
    char name[96];
    snprintf(name, sizeof name, "%s:%s", s->name, fault);
    const bool only = faults && strcmp(faults, name) == 0;
    const bool all = faults && (strcmp(faults, "all") == 0 || strcmp(faults, s->name) == 0);
    if (!only && !all && (faults || test_between(&draw, 0, 999) >= test_scaled(PERMILLE))) return;
    copy_tree(in_work("before"), in_work("case"));
    const char *trouble = judge(s, fault);
    if (only) print_message("%s%s", output, errors);
    if (!trouble) return;
    if (failures++ < SHOWN)
        print_error("CGP_TEST_FAULTS=%s: %s; standard error: %s\n", name, trouble, errors);
}

static const struct {
    const char *kind, *how[5];
} kinds[] = {
    {"create", {"ENOSPC", "EIO", "KILL"}},
    {"write", {"ENOSPC", "EIO", "SHORT", "KILL"}},
    {"flush", {"ENOSPC", "EIO", "KILL"}},
    {"sync", {"ENOSPC", "EIO", "KILL"}},
    {"rename", {"ENOSPC", "EIO", "KILL"}},
    {"unlink", {"EIO", "KILL"}},
    {"truncate", {"EIO", "KILL"}},
    {"open", {"EIO"}},
    {"read", {"EIO", "SHORT"}},
    {"list", {"EIO"}},
    {"stat", {"EIO"}},
    {"lock", {"EIO"}},
    {"close", {"EIO"}},
};

/* Return how many calls of a kind the command made without a fault. */
static int count_of(const char *report, const char *kind) {
    char key[32];
    snprintf(key, sizeof key, "count %s ", kind);
    const char *line = strstr(report, key);
    return line ? atoi(line + strlen(key)) : 0;
}

static void prepare(const scenario *s) {
    remove_tree(in_work("before"));
    assert_int_equal(mkdir(in_work("before"), 0777), 0);
    for (int i = 0; i < 4 && s->before[i]; i++) {
        const int code = run("before", s->before[i], NULL);
        if (code) fail_msg("%s: %s", s->before[i], errors);
    }
    if (s->leave) s->leave();
}

static void try_all(const scenario *s) {
    char report[CAPACITY];
    const int cases_before = cases, failures_before = failures;
    memset(outcomes, 0, sizeof outcomes);
    prepare(s);
    copy_tree(in_work("before"), in_work("expected"));
    if (run("expected", s->command, "none:0:EIO") != s->code)
        fail_msg("%s: %s", s->command, errors);
    read_text(in_work("report"), report);
    assert_true(count_of(report, "stat") > 0); /* shows that fail_calls sees the program's calls */
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        for (int n = 1; n <= count_of(report, kinds[k].kind); n++) {
            for (int h = 0; h < 5 && kinds[k].how[h]; h++) {
                char fault[64];
                snprintf(fault, sizeof fault, "%s:%d:%s", kinds[k].kind, n, kinds[k].how[h]);
                try_fault(s, fault);
            }
        }
    }
    print_message("%s: %d cases (%d went on rightly, %d said why not, %d were killed), %d wrong\n",
                  s->name, cases - cases_before, outcomes[0], outcomes[1], outcomes[2],
                  failures - failures_before);
    assert_int_equal(failures - failures_before, 0);
}

/* --- scenarios --- */

static char *both(const char *directory, const char *name) {
    static char paths[4][300];
    static int turn;
    char *path = paths[turn++ % 4];
    snprintf(path, sizeof paths[0], "%s/%s/%s", work, directory, name);
    return path;
}

static bool is_there(const char *name) {
    struct stat info;
    return lstat(both("case", name), &info) == 0;
}

static bool old_or_new(const char *name) {
    return same_file(both("case", name), both("before", name)) ||
           same_file(both("case", name), both("expected", name));
}

static const char *tokens_are_whole(const char *fault, int code) {
    (void)fault, (void)code;
    return old_or_new("tokens.bin") ? NULL : "tokens.bin is neither the old one nor the new one";
}

static const char *weights_are_whole(const char *fault, int code) {
    (void)fault, (void)code;
    return old_or_new("weights.safetensors")
               ? NULL
               : "weights.safetensors is neither the old one nor the new one";
}

/* A directory without config.json cannot be loaded as weights. After a kill, such a directory may
 * remain. After an error, it may remain only if the directory held no weights before. */
static const char *directory_is_whole(const char *fault, int code) {
    const bool there = is_there("directory/config.json");
    (void)fault;
    if (there && !old_or_new("directory/model.safetensors"))
        return "config.json is there beside other weights";
    struct stat info;
    const bool was = lstat(both("before", "directory/config.json"), &info) == 0;
    return code == 1 && was && !there ? "both the old weights and the new ones are lost" : NULL;
}

/* After an error, the old run or the new run remains. After a kill, the next start first restores
 * one of the two runs if necessary. That start is then refused, because a run exists. */
static const char *run_is_whole(const char *fault, int code) {
    static const char weights[] = "run/latest/weights.safetensors";
    (void)fault;
    if (is_there("run/run.json") && !old_or_new(weights))
        return "run.json is there beside other weights";
    if (code > 1 && run("case", "convert directory run", NULL) != 1)
        return "after a kill there is no run";
    return is_there("run/run.json") && old_or_new(weights) ? NULL : "both runs are lost";
}

/* The program must not overlook the run's checkpoint and start from step 0. */
static const char *goes_on(const char *fault, int code) {
    (void)fault;
    if (code != 0 || strstr(output, "resumed      after step 2")) return NULL;
    return "it begins anew";
}

/* Create leftovers of dead processes: an incomplete checkpoint, an incomplete deletion, and an
 * unfinished line in metrics.jsonl. */
static void leave_halves(void) {
    static const char *const directories[] = {".cgpipe-step-00000003-999999999-0.tmp",
                                              ".cgpipe-step-00000001-999999999-1.gone"};
    for (int i = 0; i < 2; i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/before/run/%s", work, directories[i]);
        assert_int_equal(mkdir(path, 0777), 0);
        strcat(path, "/weights.safetensors");
        test_write_file(path, "half", 4);
    }
    assert_int_equal(symlink("step-00000003", both("before", "run/.cgpipe-latest-999999999-2.tmp")),
                     0);
    FILE *metrics = fopen(both("before", "run/metrics.jsonl"), "a");
    assert_non_null(metrics);
    fputs("{\"step\":3,\"loss\":1}\n{\"step\":4,\"lo", metrics);
    assert_int_equal(fclose(metrics), 0);
}

#define TO_HALF TRAIN " --steps 2 --keep 1 --run run"
#define OTHER TRAIN " --steps 1 --seed 7 --run "

static const scenario start = {
    .name = "start",
    .command = TRAIN " --steps 3 --keep 1 --run run --json out.json --trace trace.json",
    .again = TRAIN " --steps 3 --keep 1 --run run --json out.json --trace trace.json --resume",
};

static const scenario resume = {
    .name = "resume",
    .before = {TO_HALF},
    .leave = leave_halves,
    .command = "train --resume --run run --steps 3",
    .again = "train --resume --run run --steps 3",
    .after = goes_on,
};

static const scenario from_step = {
    .name = "from_step",
    .before = {TRAIN " --steps 3 --keep 0 --run run"},
    .command = "train --resume --run run --from-step 1 --steps 2",
    .again = "train --resume --run run --from-step 1 --steps 2",
};

/* Without --overwrite, the program must not replace existing files. */
static const scenario refused = {
    .name = "refused",
    .before = {TO_HALF},
    .command = OTHER "run",
    .again = OTHER "run",
    .code = 1,
};

static const scenario overwrite = {
    .name = "overwrite",
    .before = {OTHER "run"},
    .command = TRAIN " --steps 2 --keep 1 --run run --overwrite",
    .again = TRAIN " --steps 2 --keep 1 --run run --overwrite",
};

static const scenario convert_in = {
    .name = "convert_in",
    .before = {OTHER "other", "convert other directory"},
    .command = "convert directory run",
    .again = "convert directory run --overwrite",
};

static const scenario convert_in_over = {
    .name = "convert_in_over",
    .before = {OTHER "other", "convert other directory", TO_HALF},
    .command = "convert directory run --overwrite",
    .again = "convert directory run --overwrite",
    .after = run_is_whole,
};

static const scenario convert_out = {
    .name = "convert_out",
    .before = {TO_HALF},
    .command = "convert run directory",
    .again = "convert run directory --overwrite",
    .after = directory_is_whole,
};

static const scenario convert_out_over = {
    .name = "convert_out_over",
    .before = {OTHER "other", "convert other directory", TO_HALF},
    .command = "convert run directory --overwrite",
    .again = "convert run directory --overwrite",
    .after = directory_is_whole,
};

static const scenario convert_file = {
    .name = "convert_file",
    .before = {OTHER "other", "convert other weights.safetensors", TO_HALF},
    .command = "convert run weights.safetensors --overwrite",
    .again = "convert run weights.safetensors --overwrite",
    .after = weights_are_whole,
};

#define TOKENIZE "tokenize --tokenizer " TEST_DATA "/tokenizer --out tokens.bin "

static const scenario tokenize = {
    .name = "tokenize",
    .before = {TOKENIZE "../short.txt"},
    .command = TOKENIZE "../text.txt",
    .again = TOKENIZE "../text.txt",
    .after = tokens_are_whole,
};

#define TUNE                                                                                       \
    "train ./directory --data ../text.txt --batch 2 --validation 0 --steps 2 --keep 1 --run run "  \
    "--resume"

/* A training from published weights makes tokens of text, and keeps the tokenizer. */
static const scenario fine_tune = {
    .name = "fine_tune",
    .before = {TRAIN " --tokenizer " TEST_DATA "/tokenizer --steps 1 --run other",
               "convert other directory"},
    .command = TUNE,
    .again = TUNE,
    .refusal = 4,
};

/* If a file of the run cannot be read, the report says so. */
static const scenario report = {
    .name = "report",
    .before = {TO_HALF},
    .command = "report run --json out.json --out page.html",
    .again = "report run --json out.json --out page.html",
};

#define TEST(name)                                                                                 \
    TEST_CASE(name##_survives_any_fault) {                                                         \
        try_all(&(name));                                                                          \
    }
TEST(start)
TEST(resume)
TEST(from_step)
TEST(refused)
TEST(overwrite)
TEST(convert_in)
TEST(convert_in_over)
TEST(convert_out)
TEST(convert_out_over)
TEST(convert_file)
TEST(tokenize)
TEST(fine_tune)
TEST(report)

/* Use a tmpfs, if there is one. */
static int make_work(void **state) {
    (void)state;
    char text[2048] = "";
    snprintf(work, sizeof work, "%s/cgp-faults-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    if (!mkdtemp(work)) return -1;
    for (int i = 0; i < 24; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text),
                 "the %d. line says that %d follows %d\n", i, 7 * i, 7 * i - 1);
    test_write_file(in_work("text.txt"), text, strlen(text));
    test_write_file(in_work("short.txt"), text, 200);
    faults = getenv("CGP_TEST_FAULTS");
    draw = test_seed();
    return 0;
}

static int remove_work(void **state) {
    (void)state;
    print_message("%d cases in all, %d wrong\n", cases, failures);
    remove_tree(work);
    return 0;
}

TEST_GROUP(.set_up = make_work, .tear_down = remove_work);

int main(void) {
#if defined(TEST_ASAN) || defined(TEST_TSAN)
    print_message("skipped: the sanitizer's own library must be loaded before any other\n");
    return 77;
#endif
    return test_run();
}
