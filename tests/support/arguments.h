/* SPDX-License-Identifier: Apache-2.0 */
/* arguments.h -- valid arguments for each public function, used by the expressions in
 * arguments.txt. Each call runs in its own process, which makes the arguments and never frees
 * them. */
#ifndef CGP_TESTS_ARGUMENTS_H
#define CGP_TESTS_ARGUMENTS_H

#include "directory.h"

#include <cgpipe/cgpipe.h>
#include <cgpipe/data.h>
#include <cgpipe/ext/backend.h>
#include <cgpipe/images.h>
#include <cgpipe/tokenizer.h>
#include <cgpipe/models/spec.h>
#include <cgpipe/models/weights.h>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    WHOLE = -1,
    FORKED = -2,
    MAX_PARAMETERS = 10,
    CAPACITY = 65536,
    FILLED = 0x5a,
    SECONDS = 60
};

/* State of one call: which pointer is NULL, the call's result, and memory for the other
 * pointers. */
typedef struct frame {
    int missing;
    cgp_status status;
    bool nothing; /* the result is 0, NULL, -1, NaN or an invalid value */
    bool given[MAX_PARAMETERS];
    _Alignas(64) unsigned char capacity[MAX_PARAMETERS][CAPACITY]; /* aligned for any type */
    unsigned char before[MAX_PARAMETERS][CAPACITY];
} frame;

typedef struct call_case {
    const char *function, *parameter; /* name of the pointer that is NULL; NULL if none is */
    int index;
    void (*call)(frame *f);
    bool accepted; /* NULL is valid for this parameter */
    cgp_status expected;
    const char *result;
} call_case;

static frame whole_frame;

/* End the call's process if an argument cannot be made. */
#define need(call)                                                                                 \
    do {                                                                                           \
        if ((call) == CGP_OK) break;                                                               \
        fprintf(stderr, "%s: %s\n", #call, cgp_message());                                         \
        _exit(2);                                                                                  \
    } while (0)

/* Continue in a child of the process that made the arguments. The parent then exits with the
 * child's exit code. */
static void leave_to_a_child(void) {
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        alarm(SECONDS);
        return;
    }
    _exit(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status)
              ? WEXITSTATUS(status)
              : 2);
}

/* Prepare the call: copy the memory, so that a write by a failed call can be detected. */
static void ready(frame *f) {
    if (f->missing == FORKED) leave_to_a_child();
    memcpy(f->before, f->capacity, sizeof f->capacity);
    (void)cgp_fail(CGP_OK, "%s", "");
}

static void *memory_of(frame *f, int k, int byte) {
    f->given[k] = true;
    return memset(f->capacity[k], byte, CAPACITY);
}

/* capacity() returns memory for parameter `k`. Only a successful call may write to it. memory() and
 * zeros() return scratch memory. */
#define capacity(f, k) memory_of(f, k, FILLED)
#define memory(f) memory_of(f, MAX_PARAMETERS - 1, 0)
#define zeros(f) memory_of(f, MAX_PARAMETERS - 2, 0)

/* --- empty results, which a refused call returns --- */

static inline bool no_number(double r) {
    return r == 0 || r == -1 || isnan(r);
}
static inline bool no_pointer(const void *r) {
    return !r;
}
static inline bool no_text(const char *r) {
    return !r || !*r || strcmp(r, "?") == 0;
}
static inline bool no_value(cgp_value r) {
    return r.id < 0;
}
static inline bool no_shape(cgp_shape r) {
    return r.rank <= 0;
}
static inline bool no_edge(cgp_plan_edge r) {
    return r.from == 0 && r.to == 0;
}
static inline bool no_times(cgp_pipeline_times r) {
    return isnan(r.seconds);
}
static inline bool no_part(cgp_loss_part r) {
    return r.weight == 0 && r.sum == 0 && r.count == 0;
}
static inline bool no_loss(cgp_model_loss r) {
    return r.output == -1 && r.target == -1 && r.weight == 0;
}
static inline bool no_group(cgp_optim_group r) {
    return !r.patterns;
}
static inline bool no_rank(cgp_rank_info r) {
    return !r.host && !r.cores;
}
static inline bool no_digest(cgp_digest_tensor r) {
    return !r.name && !r.part;
}
#define OPTIONS_RESULT(type)                                                                       \
    static inline bool no_##type(type r) {                                                         \
        (void)r;                                                                                   \
        return false;                                                                              \
    }
OPTIONS_RESULT(cgp_init)
OPTIONS_RESULT(cgp_padding)
OPTIONS_RESULT(cgp_optim)
OPTIONS_RESULT(cgp_plan_options)
OPTIONS_RESULT(cgp_save_options)
OPTIONS_RESULT(cgp_schedule_options)
OPTIONS_RESULT(cgp_text_options)
OPTIONS_RESULT(cgp_token_options)
OPTIONS_RESULT(cgp_data_source)
OPTIONS_RESULT(cgp_shapes_options)
OPTIONS_RESULT(cgp_cifar_options)
OPTIONS_RESULT(cgp_mnist_options)
OPTIONS_RESULT(cgp_image_folder_options)
OPTIONS_RESULT(cgp_profile_options)
OPTIONS_RESULT(cgp_balance_size_options)
OPTIONS_RESULT(cgp_op_check_options)
OPTIONS_RESULT(cgp_search_options)
OPTIONS_RESULT(cgp_gpt2_options)
OPTIONS_RESULT(cgp_llama_options)
OPTIONS_RESULT(cgp_resnet_options)
OPTIONS_RESULT(cgp_unet_options)
OPTIONS_RESULT(cgp_vit_options)
OPTIONS_RESULT(cgp_amoebanetd_options)
OPTIONS_RESULT(cgp_model_spec)
OPTIONS_RESULT(cgp_backend_info)
OPTIONS_RESULT(cgp_transport_info)
OPTIONS_RESULT(cgp_plugin_info)
#define OF(type, r)                                                                                \
    type:                                                                                          \
    no_##type
#define NOTHING(r)                                                                                 \
    _Generic((r), const char *: no_text, char *: no_text, void *: no_pointer,                      \
             cgp_value: no_value,                                                                  \
             cgp_shape: no_shape, cgp_plan_edge: no_edge, cgp_pipeline_times: no_times,        \
             cgp_digest_tensor: no_digest,                                                         \
             cgp_rank_info: no_rank, cgp_optim_group: no_group,                                    \
             cgp_loss_part: no_part, cgp_model_loss: no_loss,                                  \
             const cgp_shape *: no_pointer, const int *: no_pointer,                           \
             const cgp_schedule_info *: no_pointer, const cgp_action *: no_pointer,            \
             const cgp_edge *: no_pointer, const cgp_plan_stage *: no_pointer,                 \
             const cgp_plan_device *: no_pointer, const cgp_schedule *: no_pointer,            \
             const cgp_schedule_timeline *: no_pointer, const cgp_data_field *: no_pointer,    \
             OF(cgp_init, r), OF(cgp_padding, r), OF(cgp_optim, r), OF(cgp_plan_options, r),   \
             OF(cgp_schedule_options, r), OF(cgp_save_options, r), OF(cgp_text_options, r),    \
             OF(cgp_token_options, r),                                                         \
             OF(cgp_data_source, r), OF(cgp_shapes_options, r), OF(cgp_cifar_options, r),      \
             OF(cgp_mnist_options, r), OF(cgp_image_folder_options, r),                        \
             OF(cgp_profile_options, r), OF(cgp_search_options, r),                            \
             OF(cgp_balance_size_options, r), OF(cgp_op_check_options, r),                     \
             OF(cgp_gpt2_options, r), OF(cgp_llama_options, r), OF(cgp_resnet_options, r),     \
             OF(cgp_unet_options, r), OF(cgp_vit_options, r),                                  \
             OF(cgp_amoebanetd_options, r), OF(cgp_model_spec, r), OF(cgp_backend_info, r),   \
             OF(cgp_transport_info, r), OF(cgp_plugin_info, r), default: no_number)(r)

/* --- plain arguments --- */

static const unsigned char bytes[64] = "0F0,0B0\n";
static const char *const texts[] = {"first", "value", NULL};
static const int ones[] = {1, 1};
static const double reals[] = {1, 1, 1, 1};
static const float floats[64] = {1};
static const cgp_edge edges[] = {{0, 1}};

/* Define a function that returns default options in static memory. */
#define DEFAULTS(name)                                                                             \
    static cgp_##name *name(void) {                                                                \
        static cgp_##name options;                                                                 \
        options = cgp_##name##_default();                                                          \
        return &options;                                                                           \
    }
DEFAULTS(schedule_options)
DEFAULTS(profile_options)
DEFAULTS(search_options)
DEFAULTS(shapes_options)
DEFAULTS(cifar_options)
DEFAULTS(mnist_options)
DEFAULTS(image_folder_options)
DEFAULTS(gpt2_options)
DEFAULTS(llama_options)
DEFAULTS(resnet_options)
DEFAULTS(unet_options)
DEFAULTS(vit_options)
DEFAULTS(amoebanetd_options)

static const cgp_balance_size_options *size_options(void) {
    static cgp_balance_size_options options;
    options = cgp_balance_size_options_default();
    return &options;
}

static const cgp_op_check_options *check_options(void) {
    static cgp_op_check_options options;
    options = cgp_op_check_options_default();
    options.tolerance = 0.01;
    return &options;
}

static const cgp_schedule_costs *schedule_costs(void) {
    static const cgp_schedule_costs costs;
    return &costs;
}

static const cgp_text_options *text_options(void) {
    static cgp_text_options options;
    options = cgp_text_options_default();
    options.sequence = 4;
    return &options;
}

static const cgp_token_options *token_options(void) {
    static cgp_token_options options;
    options = cgp_token_options_default();
    options.sequence = 4;
    return &options;
}

static cgp_model_spec *spec(void) {
    static cgp_model_spec model;
    model = cgp_model_spec_default();
    model.kind = CGP_MODEL_RESNET;
    model.resnet.depth = 20;
    return &model;
}

static const cgp_optim *optim(void) {
    static cgp_optim optimizer;
    optimizer = cgp_optim_adamw(0.1, 0);
    return &optimizer;
}

static const char *path(const char *name) {
    return test_path_of(name);
}

/* Return an open file descriptor of the test's directory. */
static int directory(void) {
    static int fd = -1;
    if (fd < 0) fd = open(path(""), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd;
}

/* --- models --- */

enum { IDS, ROWS, IMAGE, ROW, LABEL, QUERY, PARAMETER, RESULT }; /* values of open_model() */

static cgp_model *last_open;

/* Make an unfinished model with one open layer, a value of each kind, and one parameter. */
static cgp_model *open_model(void) {
    cgp_model *model = NULL;
    need(cgp_model_create(&model, "open"));
    cgp_model_input(model, "ids", CGP_I32, 1, (const int64_t[]){4});
    cgp_model_input(model, "rows", CGP_F32, 2, (const int64_t[]){4, 12});
    cgp_model_input(model, "image", CGP_F32, 3, (const int64_t[]){8, 8, 4});
    cgp_model_input(model, "row", CGP_F32, 1, (const int64_t[]){4});
    cgp_model_input(model, "label", CGP_I32, 1, (const int64_t[]){1});
    cgp_model_input(model, "query", CGP_F32, 2, (const int64_t[]){1, 12});
    cgp_model_layer(model, "layer");
    const cgp_value kept =
        cgp_linear(model, (cgp_value){ROW}, "first", (cgp_linear_options){.out = 4});
    need(kept.id == PARAMETER ? CGP_OK : CGP_EINVAL);
    need(cgp_relu(model, kept).id == RESULT ? CGP_OK : CGP_EINVAL);
    last_open = model;
    return model;
}

/* Make a model that maps rows of 4 numbers to 3 classes, with a norm that keeps statistics. If
 * `loss` is false, the model has an output but no loss. */
static cgp_model *make_model(bool loss) {
    cgp_model *model = NULL;
    need(cgp_model_create(&model, "whole"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (const int64_t[]){4});
    const cgp_value labels = cgp_model_input(model, "labels", CGP_I32, 1, (const int64_t[]){1});
    cgp_model_layer(model, "one");
    x = cgp_linear(model, x, "one", (cgp_linear_options){.out = 4, .init = {CGP_INIT_ONE, 0}});
    x = cgp_batch_norm(model, x, "norm", 1e-5, 0.1);
    cgp_model_layer(model, "two");
    x = cgp_linear(model, x, "two", (cgp_linear_options){.out = 3, .init = {CGP_INIT_ONE, 0}});
    cgp_model_output(model, x);
    if (loss) cgp_model_loss_cross_entropy(model, x, labels, -100, 1);
    need(cgp_model_finish(model));
    return model;
}

static const cgp_model *whole_model(void) {
    static const cgp_model *model;
    if (!model) model = make_model(true);
    return model;
}

static cgp_model *stashed_model(void) {
    cgp_model *model = open_model();
    cgp_model_stash(model, "left", "kept", (cgp_value){RESULT});
    return model;
}

static cgp_model *finishing_model(void) {
    cgp_model *model = open_model();
    cgp_model_output(model, (cgp_value){RESULT});
    return model;
}

static cgp_status same_infer(const void *attributes, const cgp_op_type *inputs,
                             cgp_op_shapes *out) {
    (void)attributes;
    out->output = inputs[0];
    return CGP_OK;
}

static cgp_status same_forward(const cgp_op_run *run) {
    memcpy(run->y, run->x[0], 4 * (size_t)run->n * 4);
    return CGP_OK;
}

static cgp_status same_backward(const cgp_op_run *run) {
    memcpy(run->dx[0], run->dy, 4 * (size_t)run->n * 4);
    return CGP_OK;
}

static cgp_status loss_infer(const void *attributes, const cgp_op_type *inputs,
                             cgp_op_shapes *out) {
    (void)attributes;
    (void)inputs;
    (void)out;
    return CGP_OK;
}

static cgp_status loss_forward(const cgp_op_run *run) {
    *run->loss = 0;
    return CGP_OK;
}

static cgp_status loss_backward(const cgp_op_run *run) {
    memset(run->dx[0], 0, 4 * (size_t)run->n * 4);
    return CGP_OK;
}

static const cgp_op same_op = {.struct_size = sizeof(cgp_op),
                               .name = "same",
                               .n_inputs = 1,
                               .infer = same_infer,
                               .forward = same_forward,
                               .backward_input = same_backward};
static const cgp_op loss_op = {.struct_size = sizeof(cgp_op),
                               .name = "zero",
                               .n_inputs = 1,
                               .is_loss = true,
                               .infer = loss_infer,
                               .forward = loss_forward,
                               .backward_input = loss_backward};
static const cgp_op_run no_run; /* an empty run */

/* Return per-step constants with the scales of two losses. */
static const cgp_step_values *step_values(void) {
    static const struct {
        cgp_step_values values;
        float scales[2];
    } row = {.scales = {0.5f, 0.25f}};
    return &row.values;
}

static void part(const cgp_op_run *run, void *work, int64_t begin, int64_t end, int thread) {
    (void)run;
    (void)work;
    (void)begin;
    (void)end;
    (void)thread;
}

static const cgp_layer_cost *layer_costs(void) {
    static const cgp_layer_cost costs[2][2] = /* [rows][layers] */
        {{{.forward_seconds = 1}, {.forward_seconds = 1}},
         {{.forward_seconds = 1}, {.forward_seconds = 1}}};
    return costs[0];
}

/* --- schedules --- */

static cgp_schedule *table(void) {
    cgp_schedule *schedule = NULL;
    need(cgp_schedule_create(&schedule, "gpipe", 2, 2, NULL));
    return schedule;
}

static const cgp_schedule *lowered(void) {
    static cgp_schedule *schedule;
    if (schedule) return schedule;
    schedule = table();
    need(cgp_schedule_lower(schedule, edges, 1));
    return schedule;
}

static const cgp_schedule *faulty(void) {
    cgp_schedule *schedule = NULL;
    need(cgp_schedule_from_csv(&schedule, "faulty", "0B0,0F0\n", 8));
    return schedule;
}

static const cgp_schedule_timeline *simulated(void) {
    static cgp_schedule_timeline timeline;
    if (!timeline.busy) need(cgp_schedule_simulate(lowered(), NULL, &timeline));
    return &timeline;
}

/* --- plans and pipelines --- */

static cgp_plan_options *plan_options(void) {
    static cgp_plan_options options;
    options = cgp_plan_options_default();
    options.batch = 4;
    options.chunks = 2;
    options.stages = 2;
    options.optim = *optim();
    return &options;
}

static cgp_plan *other_plan(void) {
    cgp_plan *plan = NULL;
    need(cgp_plan_create(&plan, whole_model(), plan_options()));
    return plan;
}

static const cgp_plan *whole_plan(void) {
    static const cgp_plan *plan;
    if (!plan) plan = other_plan();
    return plan;
}

static const cgp_tensor *const *inputs(void) {
    static int32_t labels[4];
    static float rows[16] = {1, 2, 3, 4, 5};
    static const cgp_tensor tensors[2] = {{CGP_F32, {2, {4, 4}}, rows},
                                          {CGP_I32, {2, {4, 1}}, labels}};
    static const cgp_tensor *const list[2] = {&tensors[0], &tensors[1]};
    return list;
}

/* Make a tensor with the shape of the model's output. The data are in the frame. */
static const cgp_tensor *const *outputs(frame *f) {
    static cgp_tensor tensor = {CGP_F32, {2, {4, 3}}, NULL};
    static const cgp_tensor *const list[1] = {&tensor};
    tensor.data = memory(f);
    return list;
}

static cgp_pipeline *other_pipeline(void) {
    cgp_pipeline *pipeline = NULL;
    need(cgp_pipeline_create(&pipeline, whole_plan(), 1));
    return pipeline;
}

/* Make a pipeline whose model has a state and an input with a gradient. */
static cgp_pipeline *with_gradients(void) {
    cgp_model *model = NULL;
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    need(cgp_model_create(&model, "norm"));
    const cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (const int64_t[]){3});
    cgp_model_input_gradient(model, x);
    cgp_model_layer(model, "norm");
    cgp_model_output(model, cgp_batch_norm(model, x, "norm", 1e-5, 0.1));
    need(cgp_model_finish(model));
    cgp_plan_options options = cgp_plan_options_default();
    options.external_loss = true;
    options.batch = 4;
    need(cgp_plan_create(&plan, model, &options));
    need(cgp_pipeline_create(&pipeline, plan, 1));
    return pipeline;
}

static cgp_pipeline *measuring(void) {
    cgp_pipeline *pipeline = other_pipeline();
    need(cgp_pipeline_measure_layers(pipeline, true));
    need(cgp_pipeline_step(pipeline, inputs(), 2, NULL));
    return pipeline;
}

/* Make a pipeline that has run a step but no update. */
static cgp_pipeline *running(void) {
    static cgp_pipeline *pipeline;
    if (!pipeline) pipeline = measuring();
    return pipeline;
}

static cgp_pipeline *updated(void) {
    need(cgp_optim_step(running()));
    return running();
}

/* Make a pipeline whose plan has `replay`. If `kept` is true, keep and run a step. */
static cgp_pipeline *replaying(bool kept) {
    cgp_plan_options *options = plan_options();
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    options->replay = true;
    need(cgp_plan_create(&plan, whole_model(), options));
    need(cgp_pipeline_create(&pipeline, plan, 1));
    if (!kept) return pipeline;
    need(cgp_pipeline_keep_step(pipeline));
    need(cgp_pipeline_step(pipeline, inputs(), 2, NULL));
    need(cgp_optim_step(pipeline));
    return pipeline;
}

/* Make a pipeline with an external loss. If `forward` is true, run a forward pass. */
static cgp_pipeline *outside(bool forward) {
    static float result[12];
    static const cgp_tensor y = {CGP_F32, {2, {4, 3}}, result};
    cgp_plan_options *options = plan_options();
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    options->external_loss = true;
    need(cgp_plan_create(&plan, make_model(false), options));
    need(cgp_pipeline_create(&pipeline, plan, 1));
    if (forward) need(cgp_pipeline_forward(pipeline, inputs(), 2, (const cgp_tensor *[]){&y}, 1));
    return pipeline;
}

static const char *saved_run(void) {
    need(cgp_pipeline_save(updated(), path("saved"), 1, "note"));
    return path("saved");
}

static const cgp_schedule_timeline *measured(void) {
    static cgp_schedule_timeline timeline;
    if (!timeline.busy) need(cgp_pipeline_last_timeline(running(), &timeline));
    return &timeline;
}

static const char *trace_text(void) {
    static char *text;
    if (!text) need(cgp_schedule_trace(cgp_plan_schedule(whole_plan()), measured(), 1e6, &text));
    return text;
}

/* --- data, files --- */

static cgp_data *data(void) {
    cgp_data *set = NULL;
    need(cgp_data_random(&set, 8, 4, 1));
    return set;
}

static cgp_status fill(void *context, cgp_split split, int64_t index, int64_t position, void *input,
                       void *target) {
    (void)context;
    (void)split;
    (void)index;
    (void)position;
    memset(input, 0, 16);
    memset(target, 0, 4);
    return CGP_OK;
}

static const cgp_data_source *data_source(void) {
    static cgp_data_source source;
    source = cgp_data_source_default();
    source.input = (cgp_data_field){CGP_F32, {1, {4}}};
    source.target = (cgp_data_field){CGP_I32, {1, {1}}};
    source.training = 4;
    source.fill = fill;
    return &source;
}

static const char *const *data_paths(void) {
    static const char *list[1];
    static char file[128];
    char text[2000];
    memset(text, 0, sizeof text);
    snprintf(file, sizeof file, "%s", path("data"));
    test_write_file(file, text, sizeof text);
    list[0] = file;
    return list;
}

static cgp_safetensors_writer *writer_at(const char *name) {
    cgp_safetensors_writer *writer = NULL;
    need(cgp_safetensors_create(&writer, path(name), 1, texts, (const cgp_dtype[]){CGP_F32},
                                &(const cgp_shape){1, {4}}, (const char *const[]){"key", "value"},
                                1));
    return writer;
}

static cgp_safetensors_writer *writer(void) {
    return writer_at("written.safetensors");
}

static cgp_safetensors_writer *full_writer(void) {
    cgp_safetensors_writer *full = writer();
    need(cgp_safetensors_append(full, floats, 16));
    return full;
}

static const char *tensor_file(void) {
    cgp_safetensors_writer *file = writer_at("tensors.safetensors");
    need(cgp_safetensors_append(file, floats, 16));
    need(cgp_safetensors_commit(file));
    return path("tensors.safetensors");
}

#define GRAPH_TEXT                                                                                 \
    "{\"format\": \"cgpipe-graph\", \"version\": 2, \"name\": \"m\", \"values\": "                 \
    "[{\"dtype\": \"f32\", "                                                                       \
    "\"shape\": [2]}, {\"dtype\": \"f32\", \"shape\": [2]}], \"inputs\": [{\"name\": \"x\", "      \
    "\"value\": 0}], "                                                                             \
    "\"layers\": [\"a\"], \"parameters\": [], \"nodes\": [{\"op\": \"gelu\", \"layer\": 0, "       \
    "\"inputs\": [0], "                                                                            \
    "\"output\": 1}], \"losses\": [], \"outputs\": [1]}"

static const char *graph_file(void) {
    need(cgp_file_replace(path("model.json"), GRAPH_TEXT, sizeof GRAPH_TEXT - 1));
    return path("model.json");
}

static cgp_safetensors *tensors(void) {
    cgp_safetensors *file = NULL;
    need(cgp_safetensors_open(&file, tensor_file()));
    return file;
}

static cgp_tokenizer *tokenizer(void) {
    cgp_tokenizer *t = NULL;
    need(cgp_tokenizer_create(&t, TEST_DATA "/tokenizer/vocab.json",
                              TEST_DATA "/tokenizer/merges.txt"));
    return t;
}

/* --- published weights --- */

static const cgp_model_spec *published_spec(void) {
    cgp_model_spec *options = spec();
    need(cgp_huggingface_read(options, TEST_DATA "/weights/gpt2"));
    options->gpt2.loss = false;
    return options;
}

static const cgp_model *published_model(void) {
    static cgp_model *model;
    if (!model) need(cgp_model_spec_create(&model, published_spec()));
    return model;
}

static cgp_weights *weights(void) {
    cgp_weights *w = NULL;
    need(cgp_weights_open(&w, published_model(), TEST_DATA "/weights/gpt2"));
    return w;
}

static cgp_pipeline *published(void) {
    static cgp_pipeline *pipeline;
    cgp_plan_options options = cgp_plan_options_default();
    cgp_plan *plan = NULL;
    options.inference = true;
    if (pipeline) return pipeline;
    need(cgp_plan_create(&plan, published_model(), &options));
    need(cgp_pipeline_create(&pipeline, plan, 1));
    return pipeline;
}

#endif
