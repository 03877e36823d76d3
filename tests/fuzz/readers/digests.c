/* SPDX-License-Identifier: Apache-2.0 */
/* digests.c -- reads arbitrary digests.bin files. cgpipe compare refuses the file with a message
 * that begins with its path, or reads whole records with ascending steps. cgpipe train --resume
 * truncates the file to whole records up to a step, and can then read the file again. */
#include "fuzz.h"

#include "base/base.h"

#include "report/digest_file.h"
#include "session/run_directory.h"

#include <cgpipe/digest.h>

#include <fcntl.h>

static const char *path;

static cgp_status refuse(cgp_status status) {
    if (status != CGP_OK) REQUIRE(strncmp(cgp_message(), path, strlen(path)) == 0);
    return status;
}

/* Read all records, as cgpipe compare does. */
static cgp_status read_all(cli_digest_file *file) {
    int64_t last = 0;
    CGP_TRY(refuse(cli_digest_file_check_end(file)));
    for (int64_t i = 0; i < file->records; i++) {
        CGP_TRY(refuse(cli_digest_file_read(file, i)));
        REQUIRE(file->step > last);
        last = file->step;
        for (int l = 0; l < file->losses; l++)
            (void)cli_digest_loss(file, l);
        for (int t = 0; t < file->tensors; t++)
            REQUIRE(cli_digest_name(file, t) && cli_digest_part(file, t) &&
                    cli_digest_hash(file, t) + CGP_DIGEST_TENSOR_BYTES + CGP_DIGEST_ROOT_BYTES <=
                        file->record + file->record_bytes);
    }
    return CGP_OK;
}

static bool try_input(const uint8_t *bytes, size_t size) {
    cli_digest_file file;
    fuzz_write("digests.bin", bytes, size);
    path = fuzz_path("digests.bin");
    const int fd = open(path, O_RDONLY);
    REQUIRE(fd >= 0);
    cgp_status status = refuse(cli_digest_file_open(&file, path, fd));
    if (status == CGP_OK) {
        REQUIRE(file.begin + (size_t)file.records * file.record_bytes + file.torn == size);
        status = read_all(&file);
    }
    cli_digest_file_release(&file);
    return status == CGP_OK;
}

/* Write a header and records with valid roots, then mutate the bytes. */
static void draw(fuzz_input *in, uint64_t *random) {
    static const char *const headers[] = {
        "{\"cgpipe_digests\":1,\"losses\":1,\"tensors\":[[\"w\",\"gradient\"]]}\n",
        "{\"cgpipe_digests\":1,\"losses\":0,\"tensors\":[]}\n"};
    const size_t which = fuzz_below(random, 2), bytes = which == 0 ? 8 + 8 + 16 + 32 : 8 + 32;
    in->size = 0;
    fuzz_append(in, headers[which], strlen(headers[which]));
    for (int64_t step = 1 + (int64_t)fuzz_below(random, 3), n = 0; n < 3; n++, step += 2) {
        unsigned char record[64] = {0};
        cgp__sha256 *hash = NULL;
        memcpy(record, &step, sizeof step);
        REQUIRE(cgp__sha256_create(&hash) == CGP_OK);
        REQUIRE(cgp__sha256_add(hash, record, bytes - 32) == CGP_OK);
        REQUIRE(cgp__sha256_finish_bytes(hash, record + bytes - 32) == CGP_OK);
        cgp__sha256_destroy(hash);
        fuzz_append(in, record, bytes);
    }
}

static const char *const words[] = {FUZZ_JSON,
                                    "{\"cgpipe_digests\":",
                                    "\"losses\":",
                                    "\"tensors\":[",
                                    "[\"w\",\"gradient\"]",
                                    "\n",
                                    "1048577",
                                    "[[]]",
                                    NULL};

static bool play(int times, uint64_t *random) {
    static fuzz_input in;
    draw(&in, random);
    for (int i = 0; i < times; i++) {
        if (fuzz_below(random, 2))
            fuzz_flip_bit(&in, fuzz_below(random, in.size), random);
        else
            fuzz_replace_word(&in, fuzz_below(random, in.size), 8, words, random);
    }
    return fuzz_take_exact(try_input, in.bytes, in.size);
}

const fuzz_reader fuzz_digests = {
    .take = try_input,
    .words = words,
    .play = play,
    .mutations = 4000,
    .accepted_in = 4000,
    .valid = 50,
    .corpus = 2,
};
