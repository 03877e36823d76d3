/* SPDX-License-Identifier: Apache-2.0 */
/* test_locales.c -- the library writes and reads the same bytes in every locale, even in a locale
 * with a decimal comma (0,5). Each writer runs in the C locale and in other locales. Each reader
 * then reads the text that was written in the C locale. */
#include "directory.h"
#include "schedules.h"

#include <cgpipe/cgpipe.h>
#include <cgpipe/graph.h>
#include <cgpipe/models/spec.h>
#include <cgpipe/models/weights.h>

#include "base/base.h"
#include "base/json.h"
#include "schedule/simulator/timeline.h"

#include <locale.h>

/* Locales with a decimal comma, with a decimal separator of two bytes, and with a lower-case i
 * without a dot. */
static const struct {
    const char *language, *charset, *half;
} locales[] = {
    {"de_DE", "ISO-8859-1", "0,5"}, {"ps_AF", "UTF-8", "0\u066b5"}, {"tr_TR", "ISO-8859-9", "0,5"}};

#define SPEC "gpt2:layers=1,width=8,heads=2,vocab=11,seq=4,eps=1.5e-05"

/* --- schedules --- */

typedef struct drawn {
    cgp_schedule *schedule;
    cgp_schedule_timeline planned, measured;
} drawn;

static void draw(drawn *d) {
    const cgp_schedule_costs costs = {.forward = (const double[]){1.25, 2.5},
                                      .transfer = (const double[]){0.375, 0.375}};
    d->schedule = test_generate("1f1b", 2, 3, 0);
    const cgp_schedule *s = d->schedule;
    test_lower(d->schedule);
    assert_ok(cgp_schedule_simulate(s, &costs, &d->planned));
    assert_ok(cgp__timeline_create(&d->measured, s, true));
    for (int k = 0; k < s->devices; k++) {
        for (int i = 0; i < s->counts[k]; i++) {
            const bool transfer = s->lists[k][i].edge >= 0;
            d->measured.end[k][i] = d->planned.end[k][i];
            d->measured.start[k][i] = !transfer ? d->planned.start[k][i]
                                      : i > 0   ? d->planned.end[k][i - 1]
                                                : 0.0;
            d->measured.released[k][i] = transfer ? d->planned.end[k][i] : 0.0;
            d->measured.ready[k][i] = transfer ? d->planned.end[k][i] : d->planned.start[k][i];
        }
    }
    assert_ok(cgp__timeline_complete(&d->measured, s));
}

static void drop(drawn *d) {
    cgp_schedule_timeline_release(&d->planned);
    cgp_schedule_timeline_release(&d->measured);
    cgp_schedule_destroy(d->schedule);
}

static char *planned_svg(const char *before) {
    (void)before;
    drawn d = {0};
    char *text = NULL;
    draw(&d);
    assert_ok(cgp_schedule_svg(d.schedule, &d.planned, &text));
    drop(&d);
    return text;
}

static char *compared_svg(const char *before) {
    (void)before;
    drawn d = {0};
    char *text = NULL;
    draw(&d);
    assert_ok(cgp_schedule_compare_svg(d.schedule, &d.planned, &d.measured, &text));
    drop(&d);
    return text;
}

static char *trace(const char *before) {
    (void)before;
    drawn d = {0};
    char *text = NULL;
    draw(&d);
    assert_ok(cgp_schedule_trace(d.schedule, &d.measured, 1e6, &text));
    drop(&d);
    return text;
}

static char *trace_read(const char *before) {
    drawn d = {0};
    char *text = NULL;
    if (!before) return trace(NULL);
    assert_ok(cgp_schedule_from_trace(&d.schedule, &d.measured, "t.json", before, strlen(before)));
    assert_ok(cgp_schedule_trace(d.schedule, &d.measured, 1e6, &text));
    drop(&d);
    return text;
}

static char *timeline_drawn(const char *before) {
    (void)before;
    drawn d = {0};
    char *text = NULL;
    draw(&d);
    assert_ok(cgp_schedule_draw_timeline(d.schedule, &d.planned, d.planned.makespan, 77, &text));
    drop(&d);
    return text;
}

static char *table(const char *before) {
    (void)before;
    drawn d = {0};
    char *text = NULL;
    draw(&d);
    assert_ok(cgp_schedule_to_csv(d.schedule, CGP_CSV_COMPUTE, &text));
    drop(&d);
    return text;
}

/* --- models --- */

static cgp_model *make_model(void) {
    cgp_model_spec spec = cgp_model_spec_default();
    cgp_model *model = NULL;
    assert_ok(cgp_model_spec_parse(&spec, SPEC));
    assert_ok(cgp_model_spec_create(&model, &spec));
    return model;
}

static char *spec(const char *before) {
    (void)before;
    cgp_model_spec read = cgp_model_spec_default();
    char text[200];
    assert_ok(cgp_model_spec_parse(&read, SPEC));
    assert_ok(cgp_model_spec_text(&read, text, sizeof text));
    assert_string_equal(text, SPEC);
    return cgp__strdup(text);
}

static char *graph(const char *before) {
    char *text = NULL;
    cgp_model *model = NULL;
    if (before)
        assert_ok(cgp_model_from_json(&model, "g.json", before, strlen(before), NULL, 0));
    else
        model = make_model();
    assert_ok(cgp_model_to_json(&text, model));
    cgp_model_destroy(model);
    return text;
}

/* Write a config.json with fractions, and read it into a spec. */
static char *published(const char *before) {
    (void)before;
    cgp_model_spec read = cgp_model_spec_default();
    char text[400];
    assert_ok(cgp_huggingface_read(&read, TEST_DATA "/weights/llama-3"));
    assert_ok(cgp_model_spec_text(&read, text, sizeof text));
    return cgp__strdup(text);
}

/* --- files that a pipeline writes: published weights, and a diagnosis with times in JSON --- */

static char *saved(const char *before) {
    (void)before;
    cgp_model_spec read = cgp_model_spec_default();
    cgp_plan_options options = cgp_plan_options_default();
    cgp_model *model = make_model();
    cgp_plan *plan = NULL;
    cgp_pipeline *pipeline = NULL;
    char text[4096], *diagnosis = NULL;
    assert_ok(cgp_model_spec_parse(&read, SPEC));
    assert_ok(cgp_plan_create(&plan, model, &options));
    assert_ok(cgp_pipeline_create(&pipeline, plan, 1));
    assert_ok(cgp_huggingface_write(&read, pipeline, model, test_directory));
    assert_ok(cgp_pipeline_diagnosis(pipeline, "half", 0, &diagnosis));
    cgp_pipeline_destroy(pipeline);
    cgp_plan_destroy(plan);
    cgp_model_destroy(model);
    assert_true(test_read_file(test_path_of("config.json"), text) > 0);
    const size_t length = strlen(text);
    assert_true(length + 2 < sizeof text);
    cgp__json_error error;
    json_t *object = cgp__json_read(diagnosis, strlen(diagnosis), &error);
    strcat(text, object ? "+" : "-");
    json_decref(object);
    free(diagnosis);
    return cgp__strdup(text);
}

/* --- messages and numbers --- */

static char *messages(const char *before) {
    (void)before;
    static const char *const names[] = {"--ZINI", "--devices"};
    cgp_model_spec read = cgp_model_spec_default();
    char bytes[32], whole[600];
    (void)cgp_fail(CGP_EINVAL, "expected a number below 1, got %g", 1.5);
    snprintf(whole, sizeof whole, "%s; %s", cgp_message(),
             cgp_bytes_text(1536, bytes, sizeof bytes));
    assert_status(cgp_model_spec_parse(&read, "gpt2:eps=1.5"), CGP_EINVAL);
    const char *near = cgp_nearest("--zini", names, 2);
    return cgp__format("%s; %s; %s", whole, cgp_message(), near ? near : "none");
}

/* --- all texts --- */

static const struct {
    const char *name;
    char *(*make)(const char *before); /* `before`: text in the C locale; or NULL */
} kinds[] = {{"planned.svg", planned_svg},
             {"compared.svg", compared_svg},
             {"trace", trace},
             {"trace read", trace_read},
             {"timeline", timeline_drawn},
             {"csv", table},
             {"spec", spec},
             {"graph", graph},
             {"published", published},
             {"saved", saved},
             {"messages", messages}};
enum { KINDS = sizeof kinds / sizeof *kinds };

TEST_CASE(texts_are_the_same_in_every_locale) {
    char *plain[KINDS];
    int different = 0;
    for (int k = 0; k < KINDS; k++)
        plain[k] = kinds[k].make(NULL);
    for (size_t i = 0; i < sizeof locales / sizeof *locales; i++) {
        char half[16];
        if (!test_set_locale(locales[i].language, locales[i].charset)) {
            print_message("no locale %s can be made\n", locales[i].language);
            for (int k = 0; k < KINDS; k++)
                free(plain[k]);
            skip();
        }
        snprintf(half, sizeof half, "%.1f", 0.5);
        assert_string_equal(half, locales[i].half);
        for (int k = 0; k < KINDS; k++) {
            char *text = kinds[k].make(plain[k]);
            if (strcmp(text, plain[k]) != 0) {
                size_t same = 0;
                while (text[same] == plain[k][same])
                    same++;
                print_error("%s, %s: at byte %zu \"%.60s\", expected \"%.60s\"\n",
                            locales[i].language, kinds[k].name, same, text + same, plain[k] + same);
                different++;
            }
            free(text);
        }
        snprintf(half, sizeof half, "%.1f", 0.5); /* the program's locale is unchanged */
        assert_string_equal(half, locales[i].half);
        test_set_c_locale();
    }
    assert_int_equal(different, 0);
    for (int k = 0; k < KINDS; k++)
        free(plain[k]);
}

TEST_GROUP(.set_up = test_make_directory, .tear_down = test_remove_directory);
