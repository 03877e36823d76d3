/* SPDX-License-Identifier: Apache-2.0 */
/* test_plugins.c -- plug-ins are found in the search directories. A broken plug-in is skipped, and
 * the reason is printed. The tests are linked with the static library, so a plug-in cannot look up
 * symbols of the library. A process opens plug-ins only once, so each test case runs in a child
 * process. */
#include "backend/registry.h"
#include "plugin/find.h"
#include "support.h"

#include <cgpipe/cgpipe.h>
#include <cgpipe/ext/plugin.h>

#include <fcntl.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "plugin/plugin.h"
#include "transport/transport.h"

/* If `condition` does not hold, print its line number and end the child process. */
#define NEED(condition)                                                                            \
    do {                                                                                           \
        if (condition) break;                                                                      \
        fprintf(stderr, "line %d: %s (message \"%s\")\n", __LINE__, #condition, cgp_message());    \
        _exit(1);                                                                                  \
    } while (0)

/* Run a case in a child process with this CGP_PLUGIN_PATH. `said` [1024] gets the child's standard
 * error; `said` may be NULL. */
static void in_child(const char *path, void (*run)(void), char *said) {
    int status = -1, ends[2];
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (said) dup2(ends[1], STDERR_FILENO);
        setenv("CGP_PLUGIN_PATH", path, 1);
        run();
        _exit(0);
    }
    close(ends[1]);
    size_t used = 0;
    for (ssize_t n; said && (n = read(ends[0], said + used, 1023 - used)) > 0;)
        used += (size_t)n;
    if (said) said[used] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0 && said) print_error("%s", said);
    assert_int_equal(status, 0);
}

#define DIRECTORY(name) TEST_PLUGINS "/" name
#define ALSO(name) ":" DIRECTORY(name)

static bool has(const char *text, const char *part) {
    return text && strstr(text, part);
}

/* --- valid plug-ins --- */

static void find_good(void) {
    const cgp_backend *backend = NULL;
    const cgp_transport *transport = NULL;
    int count = 0;
    int64_t bytes = 0;
    NEED(cgp__backend_find("good", &backend) == CGP_OK && strcmp(backend->name, "good") == 0);
    NEED(cgp__transport_find("good-transport", &transport) == CGP_OK);
    NEED(cgp_backend_devices(&count, "good") == CGP_OK && count == 2);
    NEED(cgp_backend_memory(&bytes, "good", 0) == CGP_OK && bytes == 3LL << 30);
    NEED(cgp_backend_memory(&bytes, "good", 2) == CGP_EINVAL);
    NEED(has(cgp_message(), "device good:2: expected an ordinal below 2"));
    const cgp_backend_info info = cgp_backend_info_at(2);
    NEED(strcmp(info.name, "good") == 0 && info.host_addressable && !info.custom_ops);
    NEED(has(info.plugin, "/good/libcgpipe-good.so"));
    NEED(!cgp_backend_info_at(0).plugin && !cgp_backend_info_at(3).name);
    NEED(strcmp(cgp_transport_info_at(0).name, "inproc") == 0);
    NEED(!cgp_transport_info_at(0).plugin && !cgp_transport_info_at(2).name);
    NEED(strcmp(cgp_transport_info_at(1).name, "good-transport") == 0);
    NEED(has(cgp_transport_info_at(1).plugin, "/good/libcgpipe-good.so"));
    const cgp_plugin_info plugin = cgp_plugin_info_at(0);
    NEED(has(plugin.path, "/good/libcgpipe-good.so") && !plugin.reason);
    NEED(strcmp(plugin.name, "good") == 0 && !cgp_plugin_info_at(1).path);
    char sha256[65];
    NEED(cgp_file_sha256(plugin.path, sha256) == CGP_OK);
    NEED(has(plugin.version, CGP_VERSION) && has(plugin.sha256, sha256));
}

TEST_CASE(an_unknown_name_opens_a_plugin_that_has_it) {
    in_child(DIRECTORY("good"), find_good, NULL);
}

static void list_first(void) {
    NEED(strcmp(cgp_backend_info_at(2).name, "good") == 0);
    find_good();
}

static void list_transports_first(void) {
    NEED(strcmp(cgp_transport_info_at(1).name, "good-transport") == 0);
    find_good();
}

TEST_CASE(so_does_a_list) {
    in_child(DIRECTORY("good"), list_first, NULL);
    in_child(DIRECTORY("good"), list_transports_first, NULL);
}

static void known_names(void) {
    const cgp_backend *backend = NULL;
    setenv("CGP_LOG", "info", 1);
    NEED(cgp__backend_find("ref", &backend) == CGP_OK);
    NEED(!cgp_backend_info_at(1).plugin && !cgp_transport_info_at(0).plugin);
}

TEST_CASE(a_known_name_opens_none) {
    char said[1024];
    in_child(DIRECTORY("good") ":relative", known_names, said);
    assert_string_equal(said, "");
}

static void *find_too(void *barrier) {
    const cgp_backend *backend = NULL;
    pthread_barrier_wait(barrier);
    return cgp__backend_find("good", &backend) == CGP_OK ? NULL : barrier;
}

static void find_from_threads(void) {
    pthread_t threads[8];
    pthread_barrier_t barrier;
    NEED(pthread_barrier_init(&barrier, NULL, 8) == 0);
    for (int i = 0; i < 8; i++)
        NEED(pthread_create(&threads[i], NULL, find_too, &barrier) == 0);
    for (int i = 0; i < 8; i++) {
        void *result = threads;
        NEED(pthread_join(threads[i], &result) == 0 && !result);
    }
    NEED(!cgp_plugin_info_at(1).path);
}

TEST_CASE(threads_open_it_once) {
    in_child(DIRECTORY("good") ":" DIRECTORY("good"), find_from_threads, NULL);
}

static void plan_on_good(void) {
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    cgp_plan_options options = cgp_plan_options_default();
    options.inference = true;
    options.devices = (const char *const[]){"good:7"};
    NEED(cgp_model_create(&model, "m") == CGP_OK);
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (const int64_t[]){4});
    cgp_model_layer(model, "first");
    cgp_model_output(model, cgp_relu(model, x));
    NEED(cgp_model_finish(model) == CGP_OK);
    NEED(cgp_plan_create(&plan, model, &options) == CGP_EINVAL);
    NEED(has(cgp_message(), "layer first, op relu, device good:0: good: has no kernels"));
    cgp_model_destroy(model);
}

TEST_CASE(its_words_are_the_message_of_a_plan) {
    in_child(DIRECTORY("good"), plan_on_good, NULL);
}

/* --- broken plug-ins --- */

static void find_broken(void) {
    static const struct {
        const char *file, *reason;
    } expected[] = {
        {"/abi/libcgpipe-abi.so", "expected CGP_PLUGIN_ABI 2, got 100 (build it with the headers"},
        {"/stale/libcgpipe-stale.so", "returned NULL (build it with the headers of cgpipe"},
        {"/short/libcgpipe-short.so", "expected a table of "},
        {"/missing/libcgpipe-missing.so",
         "backend missing: expected a function device.copy, got NULL"},
        {"/same/libcgpipe-same.so", "backend cpu: expected a name of its own"},
        {"/entry/libcgpipe-entry.so", "expected a function cgp_plugin_entry, got none"},
        {"/refuses/libcgpipe-refuses.so", "refuses: no driver here"},
        {"/transport/libcgpipe-transport.so", "transport transport-transport: expected all"},
        {"/old/libcgpipe-old.so", "expected CGP_TRANSPORT_ABI 3, got 2 (build it with the headers"},
        {"/good/libcgpipe-good.so", NULL},
    };
    const int n = sizeof expected / sizeof expected[0];
    const cgp_backend *backend = NULL;
    NEED(cgp__backend_find("abi", &backend) == CGP_EINVAL);
    NEED(has(cgp_message(), "device: expected cpu, ref, "));
    NEED(has(cgp_message(), "libcgpipe-abi.so: expected CGP_PLUGIN_ABI 2, got 100"));
    for (int i = 0; i < n; i++) {
        const cgp_plugin_info info = cgp_plugin_info_at(i);
        NEED(has(info.path, expected[i].file));
        NEED(expected[i].reason ? has(info.reason, expected[i].reason) : !info.reason);
    }
    NEED(!cgp_plugin_info_at(n).path && !cgp_plugin_info_at(-1).path);
    NEED(cgp__backend_find("missing", &backend) == CGP_EINVAL);
    NEED(cgp__backend_find("good", &backend) == CGP_OK);
    NEED(cgp__backend_find("transport", &backend) == CGP_OK); /* its backend is valid */
    NEED(cgp__backend_find("cpu", &backend) == CGP_OK && backend == &cgp__backend_cpu);
}

TEST_CASE(a_broken_one_is_left_out_with_the_reason_and_no_other) {
    in_child(DIRECTORY("abi") ALSO("stale") ALSO("short") ALSO("missing") ALSO("same") ALSO("entry")
                 ALSO("refuses") ALSO("transport") ALSO("old") ALSO("good"),
             find_broken, NULL);
}

static void find_none(void) {
    const cgp_backend *backend = NULL;
    NEED(cgp__backend_find("good", &backend) == CGP_EINVAL);
    NEED(has(cgp_message(), "device: expected cpu or ref, got \"good\""));
    NEED(!cgp_plugin_info_at(0).path);
}

static char empty[] = "/tmp/cgp-plugins-XXXXXX";

static void find_damaged(void) {
    const cgp_plugin_info info = cgp_plugin_info_at(0);
    NEED(has(info.path, "/libcgpipe-damaged.so") && has(info.reason, "libcgpipe-damaged.so"));
    NEED(!info.name && !cgp_plugin_info_at(1).path);
}

TEST_CASE(a_file_that_is_none_is_left_out) {
    static const char *const names[] = {"libcgpipe-damaged.so", "libcgpipe-.so",
                                        "libother-plugin.so", "libcgpipe-a.so.1", "libcgpipe.so"};
    char path[128];
    char said[1024];
    assert_non_null(mkdtemp(empty));
    /* an empty list must not be sorted, because qsort() does not accept NULL */
    in_child(empty, find_none, said);
    assert_string_equal(said, "");
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", empty, names[i]);
        const int file = open(path, O_CREAT | O_WRONLY, 0755);
        assert_true(file >= 0 && write(file, "no object", 9) == 9 && close(file) == 0);
    }
    in_child(empty, find_damaged, NULL);
    for (int i = 0; i < 5; i++) {
        snprintf(path, sizeof path, "%s/%s", empty, names[i]);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(empty), 0);
}

/* --- search directories --- */

static void find_none_here(void) {
    NEED(chdir(DIRECTORY("good")) == 0);
    find_none();
}

TEST_CASE(nothing_in_the_current_directory_is_opened) {
    static const char *const paths[] = {"", ".", "./", "../good", ":", ".:", "good"};
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        char said[1024];
        in_child(paths[i], find_none_here, said);
        if (*paths[i])
            assert_non_null(strstr(said, "CGP_PLUGIN_PATH: expected absolute directories with "
                                         "colons between, got \""));
        else
            assert_string_equal(said, "");
    }
}

static void find_good_quietly(void) {
    const cgp_backend *backend = NULL;
    NEED(cgp__backend_find("good", &backend) == CGP_OK);
}

TEST_CASE(an_entry_that_is_refused_leaves_the_others) {
    char said[1024];
    in_child("relative::/not/there:" DIRECTORY("good"), find_good_quietly, said);
    assert_non_null(strstr(said, "got \"relative\" (left out)"));
    assert_non_null(strstr(said, "got \"\" (left out)"));
    assert_non_null(strstr(said, "/not/there: No such file or directory"));
}
