/* SPDX-License-Identifier: Apache-2.0 */
/* test_ranks_storage.c -- if ranks find different directories at the same path, or different
 * checkpoints, all ranks refuse the call. The message names the rank that differs. Copies of one
 * checkpoint are accepted. */
#define _GNU_SOURCE /* nftw */
#include "rank_world.h"

#include "checkpoints.h"

static char early[96], later[96];

/* Save step 1 in the directory `early`, and step 2 in the directory `later`. */
static void save_twice(rank *r) {
    note_create(r);
    for (int s = 0; s < 2; s++) {
        note(r, step(r, r->batch->inputs[0], r->batch->inputs[1]));
        note(r, cgp_optim_step(r->pipeline));
        note(r, cgp_pipeline_save(r->pipeline, s ? later : early, 0, NULL));
    }
}

static void load_two(rank *r) {
    char before[65] = "a", after[65] = "b";
    note_create(r);
    note(r, cgp_pipeline_weights_sha256(r->pipeline, before));
    note(r, cgp_pipeline_load(r->pipeline, r->directory, NULL));
    note(r, cgp_pipeline_load(r->pipeline, r->number == 1 ? "/nowhere" : r->directory, NULL));
    note(r, cgp_pipeline_weights_sha256(r->pipeline, after));
    note(r, strcmp(before, after) == 0 ? CGP_OK : CGP_ESTATE);
}

TEST_CASE(ranks_that_find_different_checkpoints_are_refused) {
    world w;
    rank ranks[3];
    make_world(&w);
    snprintf(early, sizeof early, "%s", test_path_of("early"));
    snprintf(later, sizeof later, "%s", test_path_of("later"));
    make_ranks(ranks, 3, w.plan, &w.batch, save_twice);
    run_ranks(ranks, 3);
    for (int k = 0; k < ranks[0].notes; k++)
        assert_note(ranks, 3, k, CGP_OK, -1, "");
    make_ranks(ranks, 3, w.plan, &w.batch, load_two);
    for (int r = 0; r < 3; r++)
        ranks[r].directory = r == 2 ? later : early;
    run_ranks(ranks, 3);
    assert_note(ranks, 3, 2, CGP_EINVAL, -1,
                "checkpoint: expected the same on all ranks, got step 2 (");
    assert_note(ranks, 3, 2, CGP_EINVAL, -1, ") on rank 2, step 1 (");
    assert_note(ranks, 3, 2, CGP_EINVAL, -1, ") on rank 0 (shared storage?)");
    assert_note(ranks, 3, 3, CGP_EIO, 1, "/nowhere");
    assert_note(ranks, 3, 4, CGP_OK, -1, "");
    assert_note(ranks, 3, 5, CGP_OK, -1, "");
    free_world(&w);
}

/* At the path of the run, rank 1 finds a different directory from the other ranks. */
static void save_and_load_apart(rank *r) {
    const bool apart = r->number == 1;
    note_create(r);
    note(r, cgp_pipeline_check_directory(r->pipeline, apart ? later : early));
    note(r, cgp_pipeline_save(r->pipeline, apart ? later : early, 0, NULL));
    note(r, cgp_pipeline_check_directory(r->pipeline, apart ? NULL : early));
    note(r, cgp_pipeline_check_directory(r->pipeline, early));
    note(r, cgp_pipeline_save(r->pipeline, early, 0, NULL));
    note(r, cgp_pipeline_weights_sha256(r->pipeline, r->sha256));
}

TEST_CASE(storage_that_ranks_do_not_share_is_refused) {
    world w;
    rank ranks[3];
    char host[256] = "", message[900];
    make_world(&w);
    snprintf(early, sizeof early, "%s", test_path_of("early"));
    snprintf(later, sizeof later, "%s", test_path_of("later"));
    assert_int_equal(gethostname(host, sizeof host - 1), 0);
    for (int there = 0; there < 2; there++) { /* 0: the other directory is missing; 1: it exists */
        make_ranks(ranks, 3, w.plan, &w.batch, save_and_load_apart);
        run_ranks(ranks, 3);
        snprintf(message, sizeof message,
                 "%s: expected on host %s the directory that rank 0 writes to on host %s, got "
                 "another one (take one on a file system that all ranks share)",
                 later, host, host);
        assert_note(ranks, 3, 1, CGP_EIO, 1, message);
        assert_note(ranks, 3, 2, CGP_EIO, 1, message);
        assert_note(ranks, 3, 3, CGP_EINVAL, 1, "directory: expected a pointer, got NULL");
        assert_note(ranks, 3, 4, CGP_OK, -1, "");
        assert_note(ranks, 3, 5, CGP_OK, -1, "");
        assert_int_equal(count_names(early, ".cgpipe-"), 0);
        assert_int_equal(count_names(early, "step-"), 1);
        assert_int_equal(count_names(later, ""), 0);
        if (!there) assert_int_equal(mkdir(later, 0700), 0);
    }
    free_world(&w);
}

/* By chance, the other directory may have an entry with the same name, for example from a process
 * with the same pid on another host. */
TEST_CASE(an_entry_of_the_same_name_is_not_enough) {
    static const char *const nonces[] = {NULL, "", "7 1763885000.000000001\n"};
    cgp__checkpoint_writer *writer = NULL, *joined = NULL;
    cgp__checkpoint_ticket ticket;
    char path[700];
    snprintf(early, sizeof early, "%s", test_path_of("early"));
    snprintf(later, sizeof later, "%s", test_path_of("later"));
    assert_ok(cgp__checkpoint_create(&writer, early, 0));
    assert_ok(cgp__checkpoint_share(writer, &ticket));
    assert_int_equal(mkdir(later, 0700), 0);
    snprintf(path, sizeof path, "%s/%s", later, ticket.temporary);
    assert_int_equal(mkdir(path, 0700), 0);
    strcat(path, "/nonce");
    for (int i = 0; i < 3; i++) {
        if (nonces[i]) test_write_file(path, nonces[i], strlen(nonces[i]));
        assert_status(cgp__checkpoint_join(&joined, later, &ticket), CGP_EIO);
        assert_message("got another one");
        assert_null(joined);
    }
    assert_ok(cgp__checkpoint_join(&joined, early, &ticket));
    cgp__checkpoint_abandon(joined);
    test_write_file(path, ticket.nonce, strlen(ticket.nonce));
    assert_ok(cgp__checkpoint_join(&joined, later, &ticket));
    cgp__checkpoint_abandon(joined);
    cgp__checkpoint_abandon(writer);
}

/* --- bytes --- */

/* A loopback transport that notes the largest number of bytes that one rank contributes to a
 * gather. */
static cgp_transport counting;
static _Atomic size_t largest_part;

static cgp_status count_gather(cgp_communicator *communicator, const void *mine, void *all,
                               const size_t *bytes) {
    for (int r = 0; r < loopback.ranks(communicator); r++)
        if (bytes[r] > largest_part) largest_part = bytes[r];
    return loopback.agreement.gather(communicator, mine, all, bytes);
}

static void save_counted(rank *r) {
    note(r, cgp_pipeline_create_on(&r->pipeline, r->plan, r->seed, &counting, r->communicator));
    note(r, cgp_pipeline_weights_sha256(r->pipeline, r->sha256));
    note(r, largest_part >= 4096 ? CGP_OK : CGP_ESTATE);              /* a whole matrix */
    note(r, cgp_pipeline_check_directory(r->pipeline, r->directory)); /* acts as a barrier */
    if (r->number == 0) largest_part = 0;
    note(r, cgp_pipeline_check_directory(r->pipeline, r->directory));
    note(r, cgp_pipeline_save(r->pipeline, r->directory, 0, NULL));
    note(r, cgp_pipeline_load(r->pipeline, r->directory, NULL));
}

TEST_CASE(no_tensor_travels_in_a_save) {
    world w;
    rank ranks[3];
    counting = loopback;
    counting.agreement.gather = count_gather;
    make_world(&w);
    make_ranks(ranks, 3, w.plan, &w.batch, save_counted);
    for (int r = 0; r < 3; r++)
        ranks[r].directory = run;
    run_ranks(ranks, 3);
    for (int k = 0; k < ranks[0].notes; k++)
        assert_note(ranks, 3, k, CGP_OK, -1, "");
    assert_in_range(largest_part, 100, 1024);
    free_world(&w);
}

/* --- a full disk --- */

#define LARGEST "model-00002-of-00003.safetensors"

static void save_again(rank *r) {
    note_create(r);
    note(r, cgp_pipeline_load(r->pipeline, r->directory, NULL));
    note(r, step(r, r->batch->inputs[0], r->batch->inputs[1]));
    note(r, cgp_optim_step(r->pipeline));
    note(r, cgp_pipeline_save(r->pipeline, r->directory, 0, NULL));
}

/* Rank 1 has both blocks of the model, so only rank 1's file exceeds the size limit. */
TEST_CASE(what_one_rank_cannot_write_is_on_none) {
    world w;
    rank ranks[3];
    struct stat info;
    cgp_plan_options o = options(3);
    make_world(&w);
    cgp_plan_destroy(w.plan);
    o.balance = (const int[]){1, 3, 2};
    assert_ok(cgp_plan_create(&w.plan, w.model, &o));
    snprintf(early, sizeof early, "%s", test_path_of("early"));
    snprintf(later, sizeof later, "%s", test_path_of("later"));
    make_ranks(ranks, 3, w.plan, &w.batch, save_twice);
    run_ranks(ranks, 3);
    assert_int_equal(stat(test_path_of("early/latest/" LARGEST), &info), 0);
    for (int full = 1; full >= 0; full--) {
        if (full) test_limit_files_to((rlim_t)info.st_size - 1);
        make_ranks(ranks, 3, w.plan, &w.batch, save_again);
        for (int r = 0; r < 3; r++)
            ranks[r].directory = early;
        run_ranks(ranks, 3);
        if (full) test_limit_files_to(RLIM_INFINITY);
        assert_note(ranks, 3, 1, CGP_OK, -1, "");
        if (full) assert_note(ranks, 3, 4, CGP_EIO, 1, LARGEST ": cannot be written");
        if (!full) assert_note(ranks, 3, 4, CGP_OK, -1, "");
        assert_int_equal(count_names(early, ".cgpipe-"), 0);
        assert_int_equal(count_names(early, "step-"), full ? 1 : 2);
    }
    free_world(&w);
}

/* --- copies --- */

static void load_only(rank *r) {
    note_create(r);
    note(r, cgp_pipeline_load(r->pipeline, r->directory, NULL));
}

static void load_with_a_copy_on_rank_1(const world *w, rank ranks[3]) {
    make_ranks(ranks, 3, w->plan, &w->batch, load_only);
    for (int r = 0; r < 3; r++)
        ranks[r].directory = r == 1 ? later : early;
    run_ranks(ranks, 3);
}

/* Each rank verifies the files that it reads, so damage in any file of rank 1's copy is found. */
TEST_CASE(damage_in_a_copy_of_one_rank_is_refused_on_all) {
    world w;
    rank ranks[3];
    char command[400], path[200];
    make_world(&w);
    snprintf(early, sizeof early, "%s", test_path_of("early"));
    snprintf(later, sizeof later, "%s", test_path_of("later"));
    make_ranks(ranks, 3, w.plan, &w.batch, save_twice);
    run_ranks(ranks, 3);
    remove_tree(later);
    snprintf(command, sizeof command, "cp -a %s %s", early, later);
    assert_int_equal(system(command), 0);
    load_with_a_copy_on_rank_1(&w, ranks);
    assert_note(ranks, 3, 1, CGP_OK, -1, "");
    for (int file = 1; file <= 3; file++) {
        snprintf(path, sizeof path, "%s/latest/model-%05d-of-00003.safetensors", later, file);
        FILE *damaged = fopen(path, "r+b");
        assert_non_null(damaged);
        const int first = fgetc(damaged);
        for (int times = 0; times < 2; times++) { /* the second time, the file is restored */
            rewind(damaged);
            fputc(times == 0 ? first ^ 1 : first, damaged);
            fflush(damaged);
            load_with_a_copy_on_rank_1(&w, ranks);
            if (times == 0) assert_note(ranks, 3, 1, CGP_EFORMAT, 1, "damaged between byte 0 and");
            if (times == 1) assert_note(ranks, 3, 1, CGP_OK, -1, "");
        }
        fclose(damaged);
    }
    free_world(&w);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = remove_tree_after,
           .before = empty_tree_before);
