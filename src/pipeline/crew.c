/* SPDX-License-Identifier: Apache-2.0 */
/* crew.c -- implements crew.h: the threads of replicas, and the calls that they make. */
#include "pipeline/crew.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "transport/transport.h"

/* A replica, its thread, and the result of its last call. */
typedef struct follower {
    cgp__member member;
    cgp__crew *crew;
    pthread_t thread; /* none for replica 0, whose calls the caller's thread makes */
    cgp_status status;
    char message[1024];
} follower;

struct cgp__crew {
    cgp__request_member *run;
    bool calling; /* read and written by the caller's thread alone */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Guarded by the lock: */
    const cgp__request *call;
    int64_t calls; /* number of calls so far */
    int left;      /* number of threads that have not ended the current call */
    bool quits;
    int started; /* number of threads that were started */
    int n;
    follower followers[]; /* [n] */
};

static void *follow(void *argument) {
    follower *f = argument;
    cgp__crew *crew = f->crew;
    pthread_mutex_lock(&crew->lock);
    for (int64_t calls = 0;; calls++) {
        while (crew->calls == calls && !crew->quits)
            pthread_cond_wait(&crew->changed, &crew->lock);
        if (crew->quits) break;
        const cgp__request *call = crew->call;
        pthread_mutex_unlock(&crew->lock);
        f->status = crew->run(&f->member, call);
        if (f->status != CGP_OK) snprintf(f->message, sizeof f->message, "%s", cgp_message());
        pthread_mutex_lock(&crew->lock);
        if (--crew->left == 0) pthread_cond_broadcast(&crew->changed);
    }
    pthread_mutex_unlock(&crew->lock);
    return NULL;
}

static cgp_status start(cgp__crew *crew) {
    cgp_communicator **communicators = NULL;
    CGP_TRY(CGP__NEW(communicators, crew->n, "replicas"));
    cgp_status status = cgp__threads_create(crew->n, communicators);
    for (int r = 0; r < crew->n && status == CGP_OK; r++) {
        follower *f = &crew->followers[r];
        f->crew = crew;
        f->member = (cgp__member){.replica = r, .communicator = communicators[r]};
    }
    free(communicators);
    for (int r = 1; r < crew->n && status == CGP_OK; r++) {
        if (pthread_create(&crew->followers[r].thread, NULL, follow, &crew->followers[r]) != 0)
            status = cgp_fail(CGP_ENOMEM, "replicas: expected %d threads, got %d", crew->n, r);
        else
            crew->started = r;
    }
    return status;
}

cgp_status cgp__crew_create(cgp__crew **out, int replicas, cgp__request_member *run) {
    const size_t size = sizeof(cgp__crew) + (size_t)replicas * sizeof(follower);
    cgp__crew *crew = cgp__calloc(1, size);
    if (!crew) return cgp__no_memory("replicas", size);
    crew->run = run;
    crew->n = replicas;
    pthread_mutex_init(&crew->lock, NULL);
    cgp__condition_init(&crew->changed);
    const cgp_status status = start(crew);
    if (status == CGP_OK)
        *out = crew;
    else
        cgp__crew_destroy(crew);
    return status;
}

void cgp__crew_destroy(cgp__crew *crew) {
    pthread_mutex_lock(&crew->lock);
    crew->quits = true;
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
    for (int r = 1; r <= crew->started; r++)
        pthread_join(crew->followers[r].thread, NULL);
    for (int r = 0; r < crew->n; r++)
        cgp__transport_threads.communicator_destroy(crew->followers[r].member.communicator);
    pthread_cond_destroy(&crew->changed);
    pthread_mutex_destroy(&crew->lock);
    free(crew);
}

cgp_status cgp__crew_request(cgp__crew *crew, const cgp__request *call) {
    crew->calling = true;
    pthread_mutex_lock(&crew->lock);
    crew->call = call;
    crew->calls++;
    crew->left = crew->n - 1;
    pthread_cond_broadcast(&crew->changed);
    pthread_mutex_unlock(&crew->lock);
    cgp_status status = crew->run(&crew->followers[0].member, call);
    pthread_mutex_lock(&crew->lock);
    while (crew->left > 0)
        pthread_cond_wait(&crew->changed, &crew->lock);
    pthread_mutex_unlock(&crew->lock);
    crew->calling = false;
    for (int r = 1; r < crew->n && (status == CGP_OK || status == CGP_EPEER); r++) {
        const follower *f = &crew->followers[r];
        if (f->status == CGP_OK || f->status == CGP_EPEER) continue;
        if (status == CGP_OK) return cgp_fail(f->status, "%s", f->message);
        status = f->status; /* the message, which names replica r, has arrived on replica 0 */
    }
    return status;
}

cgp__member *cgp__crew_member(cgp__crew *crew, int replica) {
    return &crew->followers[replica].member;
}

bool cgp__crew_is_calling(const cgp__crew *crew) {
    return crew->calling;
}
