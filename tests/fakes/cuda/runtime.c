/* SPDX-License-Identifier: Apache-2.0 */
/* runtime.c -- the fake CUDA runtime: settings, errors, devices. */
#include "runtime.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"

static cgp__shim_settings settings = {.devices = 8,
                                      .driver = CUDART_VERSION,
                                      .memory = INT64_C(16) << 30,
                                      .algorithms = 2,
                                      .multiprocessors = 132,
                                      .tensor_core = CGP__TENSOR_CORE_DEFAULT};
static pthread_once_t settings_once = PTHREAD_ONCE_INIT;
static _Atomic int64_t delay_ns;                         /* tests change it while streams read it */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for fail_call, fail_work, drop_node */
static _Atomic int failures[CGP__SHIM_MAX_DEVICES];
static _Atomic int64_t objects_alive, objects_made;
static __thread cudaError_t last_error;
static __thread int current_device;

/* --- settings --- */

static int64_t environment_number(const char *name, int64_t otherwise, int64_t least,
                                  int64_t limit) {
    const char *text = getenv(name);
    if (!text) return otherwise;
    char *end;
    const long long value = strtoll(text, &end, 10);
    if (end != text && *end == '\0' && value >= least && value <= limit) return value;
    fprintf(stderr, "cuda-host: %s: expected %lld to %lld, got \"%s\"\n", name, (long long)least,
            (long long)limit, text);
    abort();
}

static void read_capabilities(void) {
    const char *text = getenv("CGP_CUDA_HOST_CAPABILITIES");
    int value = 90;
    for (int i = 0; i < CGP__SHIM_MAX_DEVICES; i++) {
        char *end = NULL;
        if (text) value = (int)strtol(text, &end, 10);
        text = end && *end == ',' ? end + 1 : NULL;
        settings.capabilities[i] = value;
    }
}

/* Return the kind of sharing that CGP_CUDA_HOST_IPC names. */
static cgp__shim_sharing environment_sharing(void) {
    static const char *const names[] = {"off", "on", "broken", "unordered"};
    const char *text = getenv("CGP_CUDA_HOST_IPC");
    for (int i = 0; text && i < 4; i++) {
        if (strcmp(text, names[i]) == 0) return (cgp__shim_sharing)i;
    }
    if (!text) return CGP__SHIM_SHARES_NOTHING;
    fprintf(stderr,
            "cuda-host: CGP_CUDA_HOST_IPC: expected off, on, broken or unordered, got \"%s\"\n",
            text);
    abort();
}

static void read_tensor_core(cgp__tensor_core *core) {
    core->block = (int)environment_number("CGP_CUDA_HOST_MMA_BLOCK", core->block, 0, CGP__TENSOR_K);
    core->extra =
        (int)environment_number("CGP_CUDA_HOST_MMA_EXTRA", core->extra, 0, CGP__TENSOR_MAX_EXTRA);
    core->nearest = environment_number("CGP_CUDA_HOST_MMA_NEAREST", 0, 0, 1) == 1;
    if (core->block == 4 || core->block == 8 || core->block == 16) return;
    fprintf(stderr, "cuda-host: CGP_CUDA_HOST_MMA_BLOCK: expected 4, 8 or 16, got %d\n",
            core->block);
    abort();
}

static void read_environment(void) {
    read_capabilities();
    settings.driver = (int)environment_number("CGP_CUDA_HOST_DRIVER", settings.driver, 0, 1000000);
    settings.devices = (int)environment_number("CGP_CUDA_HOST_DEVICES", settings.devices, 0,
                                               CGP__SHIM_MAX_DEVICES);
    settings.memory = environment_number("CGP_CUDA_HOST_MEMORY", settings.memory, 0, INT64_MAX);
    delay_ns = environment_number("CGP_CUDA_HOST_DELAY", 0, 0, 1000000000);
    settings.algorithms =
        (int)environment_number("CGP_CUDA_HOST_ALGORITHMS", settings.algorithms, 0, 8);
    settings.uuids = environment_number("CGP_CUDA_HOST_UUIDS", getpid(), 0, INT64_MAX);
    settings.unlisted = environment_number("CGP_CUDA_HOST_UNLISTED", 0, 0, 1) == 1;
    settings.refused_rows = environment_number("CGP_CUDA_HOST_REFUSES", 0, 0, INT64_MAX);
    if (settings.refused_rows > 0) {
        settings.broken = 1;
        settings.fault = CGP__SHIM_REFUSES_ROWS;
    }
    settings.multiprocessors = (int)environment_number("CGP_CUDA_HOST_MULTIPROCESSORS",
                                                       settings.multiprocessors, 1, 100000);
    settings.order = cgp__shim_environment_order();
    settings.sharing = environment_sharing();
    read_tensor_core(&settings.tensor_core);
}

cgp__shim_settings *cgp__shim_get_settings(void) {
    pthread_once(&settings_once, read_environment);
    return &settings;
}

int64_t cgp__shim_get_delay(void) {
    pthread_once(&settings_once, read_environment);
    return delay_ns;
}

void cgp__shim_set_delay(int64_t ns) {
    pthread_once(&settings_once, read_environment);
    delay_ns = ns;
}

/* --- objects --- */

void cgp__shim_count_object(int change) {
    atomic_fetch_add(&objects_alive, change);
    if (change > 0) atomic_fetch_add(&objects_made, change);
}

cgp__shim_objects cgp__shim_get_objects(void) {
    return (cgp__shim_objects){atomic_load(&objects_alive), atomic_load(&objects_made)};
}

/* --- errors --- */

static bool due(int *in) {
    pthread_mutex_lock(&lock);
    const bool now = *in > 0 && --*in == 0;
    pthread_mutex_unlock(&lock);
    return now;
}

cudaError_t cgp__shim_enter_on(int device) {
    cgp__shim_settings *s = cgp__shim_get_settings();
    return due(&s->fail_call) ? s->error : cgp__shim_failure(device);
}

cudaError_t cgp__shim_enter(void) {
    return cgp__shim_enter_on(current_device);
}

cudaError_t cgp__shim_leave(cudaError_t error) {
    if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
    return error;
}

cudaError_t cgp__shim_failure(int device) {
    return (cudaError_t)atomic_load(&failures[device]);
}

void cgp__shim_fail_device(int device, cudaError_t error) {
    int none = cudaSuccess;
    atomic_compare_exchange_strong(&failures[device], &none, (int)error);
}

cudaError_t cgp__shim_next_work(void) {
    cgp__shim_settings *s = cgp__shim_get_settings();
    return due(&s->fail_work) ? s->error : cudaSuccess;
}

bool cgp__shim_drops_node(void) {
    return due(&cgp__shim_get_settings()->drop_node);
}

cudaError_t cudaPeekAtLastError(void) {
    return last_error;
}

cudaError_t cudaGetLastError(void) {
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

typedef struct error_text {
    cudaError_t error;
    const char *name, *text;
} error_text;

static const error_text *find_error(cudaError_t error) {
#define ERROR(name, text)                                                                          \
    { name, #name, text }
    static const error_text all[] = {
        ERROR(cudaSuccess, "no error"),
        ERROR(cudaErrorInvalidValue, "invalid argument"),
        ERROR(cudaErrorMemoryAllocation, "out of memory"),
        ERROR(cudaErrorInitializationError, "initialization error"),
        ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
        ERROR(cudaErrorInsufficientDriver,
              "CUDA driver version is insufficient for CUDA runtime version"),
        ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
        ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
        ERROR(cudaErrorDeviceUninitialized, "invalid device context"),
        ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
        ERROR(cudaErrorNotReady, "device not ready"),
        ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
        ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
        ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
        ERROR(cudaErrorNotSupported, "operation not supported"),
        ERROR(cudaErrorStreamCaptureUnsupported,
              "operation not permitted when stream is capturing"),
        ERROR(cudaErrorStreamCaptureInvalidated,
              "operation failed due to a previous error during capture"),
        ERROR(cudaErrorUnknown, "unknown error"),
    };
#undef ERROR
    const size_t n = sizeof all / sizeof *all;
    for (size_t i = 0; i < n; i++) {
        if (all[i].error == error) return &all[i];
    }
    return &all[n - 1];
}

const char *cudaGetErrorName(cudaError_t error) {
    return find_error(error)->name;
}

const char *cudaGetErrorString(cudaError_t error) {
    return find_error(error)->text;
}

/* --- devices --- */

static bool is_device(int device) {
    return device >= 0 && device < cgp__shim_get_settings()->devices;
}

int cgp__shim_current_device(void) {
    return current_device;
}

static _Atomic bool launched[CGP__SHIM_MAX_DEVICES];

void cgp__shim_note_launch(int device) {
    atomic_store_explicit(&launched[device], true, memory_order_relaxed);
}

bool cgp__shim_has_launched(int device) {
    return atomic_load_explicit(&launched[device], memory_order_relaxed);
}

cudaError_t cudaGetDeviceCount(int *count) {
    cgp__shim_settings *s = cgp__shim_get_settings();
    *count = 0;
    if (due(&s->fail_call)) return cgp__shim_leave(s->error);
    if (s->driver < CUDART_VERSION) return cgp__shim_leave(cudaErrorInsufficientDriver);
    if (s->devices == 0) return cgp__shim_leave(cudaErrorNoDevice);
    *count = s->devices;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    if (!is_device(device)) return cgp__shim_leave(cudaErrorInvalidDevice);
    CGP__SHIM_TRY(cgp__shim_enter_on(device));
    const int capability = cgp__shim_get_settings()->capabilities[device];
    *value = attribute == cudaDevAttrMultiProcessorCount ? cgp__shim_get_settings()->multiprocessors
             : attribute == cudaDevAttrComputeCapabilityMajor ? capability / 10
                                                              : capability % 10;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device) {
    const int64_t number[2] = {cgp__shim_get_settings()->uuids, device};
    if (!is_device(device)) return cgp__shim_leave(cudaErrorInvalidDevice);
    CGP__SHIM_TRY(cgp__shim_enter_on(device));
    *properties = (struct cudaDeviceProp){.name = "cuda-host"};
    memcpy(properties->uuid.bytes, number, sizeof number);
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = cgp__shim_get_settings()->driver;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    if (!is_device(device)) return cgp__shim_leave(cudaErrorInvalidDevice);
    CGP__SHIM_TRY(cgp__shim_enter_on(device));
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = current_device;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) {
    CGP__SHIM_TRY(cgp__shim_refuse_capture());
    CGP__SHIM_TRY(cgp__shim_enter());
    cgp__shim_drain(current_device);
    return cgp__shim_leave(cgp__shim_failure(current_device));
}

/* Devices have peer access if both ordinals are even or both are odd. Therefore tests use both
 * kinds of copies: direct, and through the host. */
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    if (!is_device(device) || !is_device(peer)) return cgp__shim_leave(cudaErrorInvalidDevice);
    *can = device != peer && (device - peer) % 2 == 0;
    return cudaSuccess;
}

static _Atomic bool enabled[CGP__SHIM_MAX_DEVICES][CGP__SHIM_MAX_DEVICES];

bool cgp__shim_peer_enabled(int device, int peer) {
    return atomic_load(&enabled[device][peer]);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    int can = 0;
    CGP__SHIM_TRY(cgp__shim_enter());
    if (flags != 0) return cgp__shim_leave(cudaErrorInvalidValue);
    CGP__SHIM_TRY(cudaDeviceCanAccessPeer(&can, current_device, peer));
    if (!can) return cgp__shim_leave(cudaErrorNotSupported);
    const bool was = atomic_exchange(&enabled[current_device][peer], true);
    return cgp__shim_leave(was ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess);
}
