/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_ranks.c -- a pipeline inside a program that uses MPI itself: one stage per process, on the
 * program's communicator.
 *
 *     cc mpi_ranks.c $(pkg-config --cflags --libs cgpipe) $(pkg-config --cflags --libs ompi-c)
 *     mpirun -n 2 ./a.out
 *
 * Every process makes the same model and plan, and the same calls. Each process passes the inputs
 * that its own stages read; all processes get the loss. The weights equal those of a single
 * process, bit for bit. */
#include <cgpipe/cgpipe.h>

#include <mpi.h>
#include <stdio.h>

enum { BATCH = 32, WIDTH = 16, CLASSES = 4, STEPS = 100 };

static cgp_status build(cgp_model **model, int layers) {
    const cgp_init init = {CGP_INIT_NORMAL, 0.3};
    CGP_TRY(cgp_model_create(model, "classes"));
    cgp_value x = cgp_model_input(*model, "x", CGP_F32, 1, (int64_t[]){WIDTH});
    const cgp_value target = cgp_model_input(*model, "class", CGP_I32, 1, (int64_t[]){1});
    for (int i = 0; i < layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "layer%d", i);
        cgp_model_layer(*model, name);
        x = cgp_linear(*model, x, name,
                       (cgp_linear_options){
                           .out = i < layers - 1 ? WIDTH : CLASSES, .bias = true, .init = init});
        if (i < layers - 1) x = cgp_gelu(*model, x);
    }
    cgp_model_loss_cross_entropy(*model, x, target, -1, 1);
    return cgp_model_finish(*model);
}

/* Draw samples. The class of a sample is the position of the largest of its first numbers. */
static void draw(float *x, int32_t *class, uint64_t *state) {
    for (int i = 0; i < BATCH; i++) {
        float *row = x + i * WIDTH;
        class[i] = 0;
        for (int k = 0; k < WIDTH; k++) {
            *state = *state * 6364136223846793005u + 1442695040888963407u;
            row[k] = (float)(*state >> 40) * 0x1p-23f - 1;
            if (k < CLASSES && row[k] > row[class[i]]) class[i] = k;
        }
    }
}

static cgp_status train(cgp_pipeline *pipeline, int rank) {
    static float x[BATCH * WIDTH];
    static int32_t class[BATCH];
    const cgp_tensor data = {CGP_F32, {2, {BATCH, WIDTH}}, x},
                     target = {CGP_I32, {2, {BATCH, 1}}, class};
    const cgp_tensor *const inputs[2] = {cgp_pipeline_reads(pipeline, 0) ? &data : NULL,
                                         cgp_pipeline_reads(pipeline, 1) ? &target : NULL};
    uint64_t state = 1;
    char sha256[65];
    for (int step = 1; step <= STEPS; step++) {
        double loss = 0;
        draw(x, class, &state);
        CGP_TRY(cgp_pipeline_step(pipeline, inputs, 2, &loss));
        CGP_TRY(cgp_optim_step(pipeline));
        if (rank == 0 && step % 25 == 0) printf("step %3d  loss %.4f\n", step, loss);
    }
    CGP_TRY(cgp_pipeline_weights_sha256(pipeline, sha256));
    if (rank == 0) printf("weights %s\n", sha256);
    return CGP_OK;
}

/* Run one rank of a pipeline whose ranks are the processes of `comm`. */
static cgp_status run(MPI_Comm comm, int rank, int ranks) {
    const cgp_transport *mpi = NULL;
    cgp_communicator *communicator = NULL;
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    cgp_plan_options options = cgp_plan_options_default();
    options.stages = options.ranks = ranks;
    options.batch = BATCH;
    options.chunks = 4;
    options.optim = cgp_optim_sgd(0.1, 0.9, false, 0);
    cgp_status status = cgp_transport_find(&mpi, "mpi");
    if (status == CGP_OK) status = mpi->communicator_create(&comm, &communicator);
    if (status == CGP_OK) status = build(&model, 8);
    if (status == CGP_OK) status = cgp_plan_create(&plan, model, &options);
    if (status == CGP_OK) status = cgp_pipeline_create_on(&pipeline, plan, 1, mpi, communicator);
    if (status == CGP_OK) status = train(pipeline, rank);
    if (status != CGP_OK && communicator) mpi->failures.fail(communicator, status, cgp_message());
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
    if (communicator) mpi->communicator_destroy(communicator);
    return status;
}

int main(int argc, char **argv) {
    int rank = 0, ranks = 1, provided = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided); /* each device has a thread */
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const cgp_status status = run(MPI_COMM_WORLD, rank, ranks);
    if (status != CGP_OK) {
        fprintf(stderr, "rank %d: %s\n", rank, cgp_message());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return MPI_Finalize();
}
