/* SPDX-License-Identifier: Apache-2.0 */
/* ops.c -- report how the time of a step is spent, summed over devices: kernels by kind of op, the
 * update, and the rest (waiting, messages and copies). Kernel times are means over the measured
 * steps; the times of step and update are medians. */
#include "report/report.h"

#include "json_value.h"
#include "session/session.h"

/* The times of a step by kind of op. */
typedef struct step {
    cgp_op_time kinds[CGP_OP_TIMES];
    int n;
    double seconds, update, rest; /* summed over all devices */
} step;

static double sum(const double *values) {
    return values[0] + values[1] + values[2];
}

static cgp_status make_step(const cli_session *session, step *s) {
    const int64_t steps = session->measures.steps;
    const double counted = (double)(steps > 2 ? steps - 2 : steps);
    const double devices = (double)cgp_plan_devices(session->plan);
    CGP_TRY(cgp_pipeline_op_times(session->pipeline, s->kinds, &s->n));
    s->seconds = devices * cli_measured(session, CLI_STEP_SECONDS);
    s->update = devices * cli_measured(session, CLI_UPDATE_SECONDS);
    s->rest = s->seconds - s->update;
    for (int i = 0; i < s->n; i++) {
        cgp_op_time *t = &s->kinds[i];
        for (int d = 0; d < 3; d++) {
            t->seconds[d] /= counted;
            t->flops[d] /= counted;
            t->bytes[d] /= counted;
        }
        s->rest -= sum(t->seconds);
    }
    return CGP_OK;
}

static void print_rate(FILE *out, double count, double seconds) {
    if (count > 0)
        fprintf(out, " %9.2f", 1e-9 * count / seconds);
    else
        fprintf(out, " %9s", "-");
}

static void print_part(FILE *out, const char *name, double seconds, const step *s) {
    fprintf(out, "%-22s %9s %9s %9s %7.1f\n", name, "", "", "", 100 * seconds / s->seconds);
}

cgp_status cli_print_ops(FILE *out, const cli_session *session) {
    step s;
    CGP_TRY(make_step(session, &s));
    fprintf(out, "\n%-22s %9s %9s %9s %7s %9s %9s   ms a step: F forward, I and W backward\n",
            "kernels", "F", "I", "W", "%", "GFLOP/s", "GB/s");
    for (int i = 0; i < s.n; i++) {
        const cgp_op_time *t = &s.kinds[i];
        const double seconds = sum(t->seconds);
        fprintf(out, "%-22s %9.3f %9.3f %9.3f %7.1f", t->op, 1e3 * t->seconds[0],
                1e3 * t->seconds[1], 1e3 * t->seconds[2], 100 * seconds / s.seconds);
        print_rate(out, sum(t->flops), seconds);
        print_rate(out, sum(t->bytes), seconds);
        fputc('\n', out);
    }
    print_part(out, "update", s.update, &s);
    print_part(out, "waiting, messages", s.rest, &s);
    return CGP_OK;
}

cgp_status cli_ops_json(const cli_session *session, json_t *report) {
    step s;
    json_t *ops = json_array();
    const cgp_status status = make_step(session, &s);
    for (int i = 0; i < s.n && status == CGP_OK; i++) {
        const cgp_op_time *t = &s.kinds[i];
        json_array_append_new(ops, json_pack("{s:s, s:o, s:o, s:o, s:o, s:o}", "op", t->op,
                                             "forward_seconds", cli_real_json(t->seconds[0]),
                                             "input_seconds", cli_real_json(t->seconds[1]),
                                             "weight_seconds", cli_real_json(t->seconds[2]),
                                             "flops", cli_real_json(sum(t->flops)), "bytes",
                                             cli_real_json(sum(t->bytes))));
    }
    json_object_set_new(report, "ops", ops);
    return status;
}
