/* SPDX-License-Identifier: Apache-2.0 */
/* test_arguments.c -- call every public function repeatedly, each time with another one of its
 * pointers NULL. The function must return CGP_EINVAL and name the parameter, or do what the header
 * says about NULL. The function must never crash, and must write nothing through its other
 * pointers.
 *
 * The build generates the calls from the headers (support/arguments.awk). So a new function is
 * tested as soon as it is in a header, and the build fails until its arguments are defined. Each
 * call runs in its own process, so a crash fails only that call. */
#include "arguments.h"

#include "argument_calls.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { AS_EXPECTED, NOT_SO, CASES = sizeof cases / sizeof cases[0] };

/* A builder keeps its first error until cgp_model_finish(). So finish the model, and judge the call
 * by the status of cgp_model_finish(). */
static void close_model(const call_case *c, frame *f) {
    const bool output = strcmp(c->function, "cgp_model_output") == 0;
    if (!last_open || f->missing == 0 || strcmp(c->function, "cgp_model_finish") == 0) return;
    if (!output) cgp_model_output(last_open, (cgp_value){RESULT});
    if (strcmp(c->function, "cgp_model_stash") == 0 && !c->parameter)
        (void)cgp_model_pop(last_open, "text", "text");
    if (strcmp(c->function, "cgp_model_tie") == 0 && !c->parameter)
        cgp_linear(last_open, (cgp_value){ROW}, "head", (cgp_linear_options){.out = 4});
    f->status = cgp_model_finish(last_open);
    f->nothing = f->nothing || strcmp(c->result, "cgp_value") != 0;
}

static int complain(const call_case *c, const frame *f, const char *reason) {
    fprintf(stderr, "%s(%s%s): %s: status %s, message \"%s\"\n", c->function,
            c->parameter ? c->parameter : "", c->parameter ? " = NULL" : "", reason,
            cgp_status_name(f->status), cgp_message());
    return NOT_SO;
}

/* Judge a call that a child process makes on a pipeline of its parent process. */
static int judge_forked(const call_case *c, const frame *f) {
    if (strcmp(c->function, "cgp_pipeline_destroy") == 0) return AS_EXPECTED; /* must only return */
    if (!strstr(cgp_message(), "pipeline: expected a call of process "))
        return complain(c, f, "expected another message");
    if (strcmp(c->result, "cgp_status") == 0 ? f->status != CGP_ESTATE : !f->nothing)
        return complain(c, f, "expected CGP_ESTATE, or nothing to come back");
    return AS_EXPECTED;
}

static int judge(const call_case *c, frame *f) {
    char expected[160];
    if (c->index == FORKED) return judge_forked(c, f);
    if (!c->parameter || c->accepted)
        return f->status == c->expected ? AS_EXPECTED
                                        : complain(c, f, "expected the status of arguments.txt");
    snprintf(expected, sizeof expected, "%s: expected a pointer, got NULL", c->parameter);
    if (!strstr(cgp_message(), expected)) return complain(c, f, "expected another message");
    if (strcmp(c->result, "cgp_status") == 0 && f->status != CGP_EINVAL)
        return complain(c, f, "expected CGP_EINVAL");
    if (strcmp(c->result, "void") != 0 && strcmp(c->result, "cgp_status") != 0 && !f->nothing)
        return complain(c, f, "expected nothing to come back");
    for (int k = 0; k < MAX_PARAMETERS; k++) {
        if (f->given[k] && memcmp(f->capacity[k], f->before[k], CAPACITY) != 0)
            return complain(c, f, "wrote through another pointer");
    }
    return AS_EXPECTED;
}

/* Run a call in its own process and return its result. */
static int try(const call_case *c) {
    static const int caught[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    frame *f = &whole_frame;
    alarm(SECONDS);
    for (size_t i = 0; i < sizeof caught / sizeof caught[0]; i++)
        signal(caught[i], SIG_DFL); /* otherwise cmocka handles the signals */
    f->missing = c->index;
    c->call(f);
    if (strcmp(c->function, "cgp_model_destroy") != 0) close_model(c, f);
    return judge(c, f);
}

static int run_case(const call_case *c) {
    int status = 0;
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) _exit(try(c));
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status))
        print_error("%s(%s%s): crashes: %s\n", c->function, c->parameter ? c->parameter : "",
                    c->parameter ? " = NULL" : "", strsignal(WTERMSIG(status)));
    else if (WEXITSTATUS(status) > NOT_SO) /* a sanitizer ended the call */
        print_error("%s(%s): ended with %d\n", c->function, c->parameter ? c->parameter : "",
                    WEXITSTATUS(status));
    return WIFSIGNALED(status) || WEXITSTATUS(status) != AS_EXPECTED;
}

/* Run cases and return the number of failures. If `index` is negative, run the cases with that
 * index. If `index` is 0, run all cases in which a pointer is missing. */
static int count_failures(int index) {
    int failures = 0, n = 0;
    for (int i = 0; i < (int)CASES; i++) {
        if (index >= 0 ? cases[i].index < 0 : cases[i].index != index) continue;
        n++;
        failures += run_case(&cases[i]);
    }
    print_message("%d calls, %d not as expected\n", n, failures);
    return failures;
}

TEST_CASE(with_all_pointers_every_call_succeeds) {
    assert_int_equal(count_failures(WHOLE), 0);
}

TEST_CASE(with_a_pointer_missing_every_call_names_it) {
    assert_int_equal(count_failures(0), 0);
}

/* Remove the test's directory with everything in it, because calls create run directories. */
static int remove_all(void **state) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'/*", test_directory);
    return system(command) || test_remove_directory(state);
}

TEST_CASE(in_a_child_every_call_on_a_pipeline_is_refused_and_none_hangs) {
    assert_int_equal(count_failures(FORKED), 0);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_all);
