/* SPDX-License-Identifier: Apache-2.0 */
/* test_cuda_sharing.c -- tests memory and events that two processes share, on cuda-host's runtime.
 * A child process exports memory and an event, and the test imports them. */
#include "in_program.h"

#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 4096 };

static const cgp_backend *b;

static cgp_device *open_device(int ordinal) {
    cgp_device *device = NULL;
    const cgp_device_options options = {.struct_size = sizeof options, .ordinal = ordinal};
    assert_ok(b->device.create(&device, &options));
    return device;
}

/* Handles that the child process sends. */
typedef struct handles {
    cgp_shared_handle memory, event;
} handles;

/* Main function of the child: export memory and an event, then execute commands. Each command is a
 * byte from the socket:
 *     f   enqueue a delayed copy that fills the memory, then a record of the event
 *     d   free the memory
 * After each command, send the byte back. Return when the socket is closed. */
static void serve(int socket) {
    handles h;
    char command;
    void *memory, *here;
    cgp_event *event = NULL;
    cgp_device *device = open_device(0);
    assert_ok(b->device.memory_create(device, BYTES, &memory));
    assert_ok(b->device.host_memory_create(device, BYTES, &here));
    assert_ok(b->sharing->memory_export(device, memory, &h.memory));
    assert_ok(b->sharing->event_export(device, &event, &h.event));
    assert_int_equal(write(socket, &h, sizeof h), sizeof h);
    cgp__shim_set_delay(200000000);
    while (read(socket, &command, 1) == 1) {
        if (command == 'd') b->device.memory_destroy(device, memory, BYTES);
        if (command == 'f') {
            memset(here, 'x', BYTES);
            assert_ok(b->device.copy(device, CGP_QUEUE_OUT, (cgp_place){device, memory},
                                     (cgp_place){NULL, here}, BYTES));
            assert_ok(b->streams->event_record(device, CGP_QUEUE_OUT, event));
        }
        assert_int_equal(write(socket, &command, 1), 1);
    }
}

/* The child process, and the objects that the test has imported from it. */
typedef struct shared {
    pid_t child;
    int socket;
    cgp_device *device;
    void *memory, *here;
    cgp_event *event;
} shared;

static shared begin(void) {
    shared s = {.child = -1};
    handles h;
    int sockets[2];
    cgp__shim_get_settings()->sharing = CGP__SHIM_SHARES;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    s.child = fork();
    assert_true(s.child >= 0);
    if (s.child == 0) {
        close(sockets[0]);
        serve(sockets[1]);
        _exit(0);
    }
    close(sockets[1]);
    s.socket = sockets[0];
    s.device = open_device(1);
    assert_int_equal(read(s.socket, &h, sizeof h), sizeof h);
    assert_ok(b->device.host_memory_create(s.device, BYTES, &s.here));
    assert_ok(b->sharing->memory_import(s.device, &h.memory, &s.memory));
    assert_ok(b->sharing->event_import(s.device, &h.event, &s.event));
    return s;
}

static void command(const shared *s, char what) {
    char answer = 0;
    assert_int_equal(write(s->socket, &what, 1), 1);
    assert_int_equal(read(s->socket, &answer, 1), 1);
    assert_int_equal(answer, what);
}

/* Copy the child's memory after the child's event. */
static void pull(const shared *s) {
    assert_ok(b->streams->event_wait(s->device, CGP_QUEUE_IN, s->event));
    assert_ok(b->device.copy(s->device, CGP_QUEUE_IN, (cgp_place){NULL, s->here},
                             (cgp_place){s->device, s->memory}, BYTES));
    assert_ok(b->streams->finish(s->device));
}

static void close_imports(shared *s) {
    b->streams->event_destroy(s->event);
    b->sharing->memory_close(s->device, s->memory);
}

/* Close the socket, and return the exit status of the child. */
static int end(shared *s) {
    int status = 0;
    close(s->socket);
    assert_int_equal(waitpid(s->child, &status, 0), s->child);
    b->device.host_memory_destroy(s->device, s->here, BYTES);
    b->device.destroy(s->device);
    return status;
}

static bool all_are(const char *bytes, char value) {
    int n = 0;
    while (n < BYTES && bytes[n] == value)
        n++;
    return n == BYTES;
}

TEST_CASE(a_copy_waits_for_the_other_process) {
    shared s = begin();
    pull(&s);
    assert_true(all_are(s.here, 0));
    command(&s, 'f');
    pull(&s);
    assert_true(all_are(s.here, 'x'));
    close_imports(&s);
    command(&s, 'd');
    assert_int_equal(end(&s), 0);
}

TEST_CASE(without_its_wait_a_copy_is_early) {
    shared s = begin();
    cgp__shim_get_settings()->sharing = CGP__SHIM_SHARES_UNORDERED;
    command(&s, 'f');
    pull(&s);
    assert_true(all_are(s.here, 0));
    close_imports(&s);
    assert_int_equal(end(&s), 0);
}

TEST_CASE(memory_that_is_freed_before_it_is_closed_ends_the_exporter) {
    shared s = begin();
    const char free_it = 'd';
    char answer;
    assert_int_equal(write(s.socket, &free_it, 1), 1);
    assert_int_equal(read(s.socket, &answer, 1), 0);
    close_imports(&s);
    const int status = end(&s);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* If a process is killed, its device never completes a pending event. Closing the imports must not
 * wait for that event. */
TEST_CASE(an_event_of_a_killed_process_never_completes) {
    shared s = begin();
    bool done = true;
    command(&s, 'f');
    kill(s.child, SIGKILL);
    assert_ok(b->streams->event_done(s.event, &done));
    assert_false(done);
    close_imports(&s);
    assert_true(WIFSIGNALED(end(&s)));
}

/* A stream that waits for an event of a killed process blocks for ever. So another child process
 * enqueues this wait. */
TEST_CASE(an_event_with_a_pending_wait_is_destroyed_at_once) {
    int status = 0;
    const pid_t importer = fork();
    assert_true(importer >= 0);
    if (importer == 0) {
        alarm(60);
        shared s = begin();
        command(&s, 'f');
        kill(s.child, SIGKILL);
        assert_ok(b->streams->event_wait(s.device, CGP_QUEUE_IN, s.event));
        b->streams->event_destroy(s.event);
        _exit(0);
    }
    assert_int_equal(waitpid(importer, &status, 0), importer);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_CASE(what_cannot_be_shared_leaves_the_device_usable) {
    cgp__shim_settings *settings = cgp__shim_get_settings();
    cgp_shared_handle memory_handle, event_handle;
    cgp_event *event = NULL, *imported = NULL;
    void *memory, *other;
    cgp_device *device = open_device(0);
    settings->sharing = CGP__SHIM_SHARES_NOTHING;
    assert_ok(b->device.memory_create(device, BYTES, &memory));
    assert_status(b->sharing->memory_export(device, memory, &memory_handle), CGP_EDEVICE);
    assert_message("cuda-host: device 0: export of its memory: operation not supported");
    b->device.memory_destroy(device, memory, BYTES);
    settings->sharing = CGP__SHIM_SHARES;
    assert_ok(b->device.memory_create(device, BYTES, &memory));
    assert_ok(b->sharing->memory_export(device, memory, &memory_handle));
    assert_ok(b->sharing->event_export(device, &event, &event_handle));
    assert_status(b->sharing->memory_import(device, &memory_handle, &other), CGP_EDEVICE);
    assert_message("cuda-host: device 0: import of memory: invalid device context");
    assert_status(b->sharing->event_import(device, &event_handle, &imported), CGP_EDEVICE);
    assert_message("cuda-host: device 0: import of an event: invalid device context");
    assert_ok(b->streams->finish(device));
    b->streams->event_destroy(event);
    b->device.memory_destroy(device, memory, BYTES);
    b->device.destroy(device);
}

int main(void) {
    b = cuda_host();
    return test_run();
}
