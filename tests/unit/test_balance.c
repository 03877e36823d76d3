/* SPDX-License-Identifier: Apache-2.0 */
/* test_balance.c -- tests the search for the balance that makes a step fastest. For every schedule
 * and for schedule tables, the result is compared with all possible balances. For models of the
 * zoo, moving one layer to a neighbouring stage never makes the step faster. The search's
 * simulation is compared with the public simulation. A balance for unequal devices is compared with
 * all possible cuts. */
#include "graphs.h"
#include "support.h"

#include <cgpipe/cgpipe.h>
#include <cgpipe/models/spec.h>

#include "base/base.h"
#include "partition/device_balance.h"
#include "partition/objective.h"
#include "partition/partition.h"
#include "schedule/table.h"

enum { MAX_LAYERS = 10, MAX_STAGES = 32 };

/* --- models, tables and times --- */

/* Make linear layers of random widths, so that their FLOPs differ. If `state` is NULL, all widths
 * are equal. */
static cgp_model *row_of_layers(uint64_t *state, int layers) {
    cgp_model *model = NULL;
    assert_ok(cgp_model_create(&model, "row"));
    cgp_value x = cgp_model_input(model, "x", CGP_F32, 1, (int64_t[]){4});
    for (int i = 0; i < layers; i++) {
        char name[16];
        snprintf(name, sizeof name, "l%d", i);
        cgp_model_layer(model, name);
        x = cgp_linear(model, x, name,
                       (cgp_linear_options){.out = state ? 4 * test_between(state, 1, 4) : 4});
    }
    const cgp_value target = cgp_model_input(model, "target", CGP_I32, 1, (int64_t[]){1});
    cgp_model_loss_cross_entropy(model, x, target, -100, 1);
    assert_ok(cgp_model_finish(model));
    return model;
}

/* Make a schedule from a CSV table with GPipe's order of actions. Stages are on random devices.
 * Every device runs its actions in one global order, so the schedule cannot deadlock. */
static cgp_schedule *random_table(uint64_t *state, int devices, int stages, int chunks) {
    char text[8192] = "";
    int device_of[MAX_STAGES];
    size_t used = 0;
    cgp_schedule *table = NULL;
    for (int j = 0; j < stages; j++)
        device_of[j] = j < devices ? j : test_between(state, 0, devices - 1);
    for (int j = stages - 1; j > 0; j--) { /* shuffle */
        const int k = test_between(state, 0, j), swapped = device_of[j];
        device_of[j] = device_of[k];
        device_of[k] = swapped;
    }
    for (int d = 0; d < devices; d++) {
        for (int cell = 0; cell < 2 * chunks * stages; cell++) {
            const bool backward = cell >= chunks * stages;
            const int i = cell / stages % chunks;
            const int j = backward ? stages - 1 - cell % stages : cell % stages;
            if (device_of[j] != d) continue;
            used += (size_t)snprintf(text + used, sizeof text - used, "%d%c%d,", j,
                                     backward ? 'B' : 'F', i);
        }
        text[used - 1] = '\n';
    }
    assert_ok(cgp_schedule_from_csv(&table, "random.csv", text, used));
    return table;
}

/* Rows of layer costs, one row per kind of device. `row_of` maps a device to its row; see
 * cgp_balance_for_devices(). */
typedef struct rows {
    const cgp_layer_cost *costs;
    const int *row_of;
} rows;

/* Simulate a plan's schedule with these costs of layers; return the makespan. */
static double makespan_of(const cgp_plan *plan, const cgp_plan_options *o, rows all) {
    const int n = cgp_plan_stages(plan);
    double times[4][MAX_STAGES] = {{0}};
    cgp_schedule_timeline timeline;
    int layers = 0;
    for (int j = 0; j < n; j++)
        layers += cgp_plan_balance(plan)[j];
    for (int j = 0; j < n; j++) {
        const cgp_plan_stage *stage = cgp_plan_stage_at(plan, j);
        const int row = all.row_of ? all.row_of[stage->device] : 0;
        const cgp_layer_cost *costs = all.costs + row * layers;
        for (int i = stage->first_layer; i < stage->first_layer + stage->layers; i++) {
            times[0][j] += costs[i].forward_seconds;
            times[1][j] += costs[i].input_seconds;
            if (cgp_recompute_is_selective(o->recompute)) times[1][j] += costs[i].selective_seconds;
            times[2][j] += costs[i].weight_seconds;
            times[3][j] += costs[i].recompute_seconds;
        }
    }
    const cgp_schedule_costs given = {.forward = times[0],
                                      .backward_input = times[1],
                                      .backward_weight = times[2],
                                      .recompute = times[3]};
    assert_ok(cgp_schedule_simulate(cgp_plan_schedule(plan), &given, &timeline));
    const double makespan = timeline.makespan;
    cgp_schedule_timeline_release(&timeline);
    return makespan;
}

/* Make a plan with a given balance, and return its simulated makespan. */
static double planned(const cgp_model *model, const cgp_plan_options *options, rows costs,
                      const int *balance) {
    cgp_plan_options o = *options;
    cgp_plan *plan = NULL;
    o.balance = balance;
    assert_ok(cgp_plan_create(&plan, model, &o));
    assert_memory_equal(cgp_plan_balance(plan), balance,
                        (size_t)cgp_plan_stages(plan) * sizeof *balance);
    const double makespan = makespan_of(plan, &o, costs);
    cgp_plan_destroy(plan);
    return makespan;
}

static bool next_balance(int *balance, int layers, int stages) {
    /* convert the balance to cuts, and find the next cuts in lexicographic order */
    int cut[MAX_STAGES + 1] = {0}, j = stages - 1;
    for (int k = 0; k < stages; k++)
        cut[k + 1] = cut[k] + balance[k];
    while (j > 0 && cut[j] == layers - stages + j)
        j--;
    if (j == 0) return false;
    cut[j]++;
    for (int k = j + 1; k < stages; k++)
        cut[k] = cut[k - 1] + 1;
    for (int k = 0; k < stages; k++)
        balance[k] = cut[k + 1] - cut[k];
    return true;
}

static void first_balance(int *balance, int layers, int stages) {
    for (int j = 0; j < stages; j++)
        balance[j] = j < stages - 1 ? 1 : layers - stages + 1;
}

static void random_costs(uint64_t *state, cgp_layer_cost *costs, int layers) {
    const int largest = test_between(state, 0, 9);
    for (int i = 0; i < layers; i++)
        costs[i] = (cgp_layer_cost){.forward_seconds = test_between(state, 0, largest),
                                    .input_seconds = test_between(state, 0, largest),
                                    .weight_seconds = test_between(state, 0, largest),
                                    .recompute_seconds = test_between(state, 0, largest),
                                    .parameter_bytes = test_between(state, 0, 9),
                                    .saved_bytes = test_between(state, 0, 9)};
}

/* --- comparison with all balances --- */

static void assert_best(const cgp_model *model, const cgp_plan_options *o, rows costs) {
    const int layers = cgp_model_layers(model), stages = cgp_plan_options_stages(o);
    int balance[MAX_STAGES], all[MAX_STAGES];
    if (costs.row_of)
        assert_ok(cgp_balance_for_devices(model, o, costs.costs, costs.row_of, balance));
    else
        assert_ok(cgp_balance_for_plan(model, o, CGP_BALANCE_MAKESPAN, costs.costs, balance));
    const double found = planned(model, o, costs, balance);
    first_balance(all, layers, stages);
    do {
        const double makespan = planned(model, o, costs, all);
        if (found <= makespan * (1 + 1e-12)) continue;
        print_error("%s: %g, but a balance with %d, %d .. layers takes %g\n",
                    o->table ? "table" : o->schedule, found, all[0], all[1], makespan);
        fail();
    } while (next_balance(all, layers, stages));
}

/* Draw options of a small plan; return false if the model has fewer layers than the plan has
 * stages. */
static bool draw(uint64_t *state, const cgp_schedule_info *info, int layers, cgp_plan_options *o) {
    *o = cgp_plan_options_default();
    o->stages = test_between(state, 1, 3);
    if (info && info->any_virtual) o->virtual_stages = test_between(state, 1, 3);
    o->schedule = info ? info->name : NULL;
    o->chunks = test_between(state, 1, 5);
    if (info && strcmp(info->name, "dualpipe-v") == 0 && o->chunks < 2 * o->stages)
        o->chunks = 2 * o->stages;
    o->batch = o->chunks;
    o->recompute = (cgp_recompute)test_between(state, 0, CGP_RECOMPUTE_EXCEPT_LAST_SELECTIVE);
    return cgp_plan_options_stages(o) <= layers;
}

/* Freeze some of the first layers, but not all layers. */
static void freeze_first(uint64_t *state, cgp_model *model) {
    const int n = test_between(state, 0, cgp_model_layers(model) - 1);
    for (int i = 0; i < n; i++) {
        char pattern[16];
        snprintf(pattern, sizeof pattern, "l%d.*", i);
        assert_ok(cgp_model_freeze(model, pattern));
    }
}

TEST_CASE(no_balance_of_a_small_plan_is_faster) {
    uint64_t state = test_seed();
    for (int k = 0; cgp_schedule_info_at(k); k++) {
        const cgp_schedule_info *info = cgp_schedule_info_at(k);
        for (int round = 0; info->has_backward && round < test_scaled(12); round++) {
            const int layers = test_between(&state, 2, 8);
            cgp_model *model = row_of_layers(&state, layers);
            cgp_layer_cost costs[MAX_LAYERS];
            cgp_plan_options o;
            random_costs(&state, costs, layers);
            if (round % 2) freeze_first(&state, model);
            if (draw(&state, info, layers, &o)) assert_best(model, &o, (rows){costs, NULL});
            cgp_model_destroy(model);
        }
    }
}

/* Each device has its own times, or the same times as another device. */
TEST_CASE(no_balance_for_unequal_devices_is_faster) {
    uint64_t state = test_seed();
    const cgp_schedule_info *info;
    for (int k = 0; (info = cgp_schedule_info_at(k)); k++) {
        for (int round = 0; round < test_scaled(4); round++) {
            const int layers = test_between(&state, 2, 8);
            cgp_model *model = row_of_layers(&state, layers);
            cgp_layer_cost costs[3 * MAX_LAYERS];
            cgp_plan_options o;
            int row_of[3];
            for (int d = 0; d < 3; d++) {
                random_costs(&state, &costs[d * layers], layers);
                row_of[d] = test_between(&state, 0, d);
            }
            if (info->has_backward && draw(&state, info, layers, &o))
                assert_best(model, &o, (rows){costs, row_of});
            cgp_model_destroy(model);
        }
    }
}

TEST_CASE(no_balance_of_a_table_is_faster) {
    uint64_t state = test_seed();
    for (int round = 0; round < test_scaled(60); round++) {
        const int layers = test_between(&state, 2, 8), stages = test_between(&state, 1, layers);
        cgp_model *model = row_of_layers(&state, layers);
        cgp_layer_cost costs[MAX_LAYERS];
        cgp_plan_options o;
        (void)draw(&state, NULL, layers, &o);
        if (o.stages > stages) o.stages = stages;
        cgp_schedule *table = random_table(&state, o.stages, stages, o.chunks);
        o.table = table;
        random_costs(&state, costs, layers);
        assert_best(model, &o, (rows){costs, NULL});
        cgp_schedule_destroy(table);
        cgp_model_destroy(model);
    }
}

/* --- moving a single layer brings no gain --- */

static cgp_layer_cost *flops_of(const cgp_model *model, const cgp_plan_options *o) {
    cgp_layer_cost *costs = calloc((size_t)cgp_model_layers(model), sizeof *costs);
    assert_ok(cgp__layer_flops_costs(model, (o->batch + o->chunks - 1) / o->chunks,
                                     (cgp__arithmetic){.type = CGP_F32}, costs));
    return costs;
}

static void assert_settled(const cgp_model *model, const char *spec, const cgp_plan_options *o) {
    const int stages = cgp_plan_options_stages(o);
    cgp_layer_cost *costs = flops_of(model, o);
    int balance[MAX_STAGES];
    cgp_plan *plan = NULL;
    assert_ok(cgp_plan_create(&plan, model, o));
    memcpy(balance, cgp_plan_balance(plan), (size_t)stages * sizeof *balance);
    const double found = makespan_of(plan, o, (rows){costs, NULL});
    /* the plan's own makespan also includes the small costs that layers of a stage share */
    assert_true(fabs(found / cgp_plan_timeline(plan)->makespan - 1) < 0.02);
    cgp_plan_destroy(plan);
    for (int j = 0; j < 2 * (stages - 1); j++) {
        const int from = j / 2 + (j & 1), to = j / 2 + !(j & 1);
        if (balance[from] == 1) continue;
        balance[from]--;
        balance[to]++;
        const double moved = planned(model, o, (rows){costs, NULL}, balance);
        if (moved < found * (1 - 1e-12))
            print_error("%s, %s on %d devices, %d micro-batches: a layer of stage %d in stage %d "
                        "saves %g %%\n",
                        spec, o->schedule, o->stages, o->chunks, from, to,
                        100 * (1 - moved / found));
        assert_true(moved >= found * (1 - 1e-12));
        balance[from]++;
        balance[to]--;
    }
    free(costs);
}

/* The test runs every schedule with every model. The cases go through the sizes round-robin. */
TEST_CASE(no_single_layer_moves_with_gain) {
    static const char *const specs[] = {
        "gpt2:layers=20,width=16,heads=2,vocab=300,seq=8",
        "llama:layers=17,width=16,heads=2,vocab=500,seq=8",
        "vit:layers=18,width=16,heads=2,image=8,patch=4,classes=50",
        "resnet20:width=4",
        "resnet50:width=4,image=32",
        "unet:depth=3,B=1,C=4,image=32",
        "amoebanetd:L=6,D=8,image=32",
    };
    static const int sizes[][2] = {{2, 4}, {3, 8}, {4, 8}, {8, 16}, {8, 32}};
    int size = 0;
    for (size_t k = 0; k < sizeof specs / sizeof specs[0]; k++) {
        cgp_model_spec spec = cgp_model_spec_default();
        cgp_model *model = NULL;
        assert_ok(cgp_model_spec_parse(&spec, specs[k]));
        assert_ok(cgp_model_spec_create(&model, &spec));
        for (int i = 0; cgp_schedule_info_at(i); i++) {
            const cgp_schedule_info *info = cgp_schedule_info_at(i);
            cgp_plan_options o = cgp_plan_options_default();
            o.stages = sizes[size][0];
            o.batch = o.chunks = sizes[size][1];
            o.schedule = info->name;
            if (strcmp(info->name, "dualpipe-v") == 0 && o.chunks < 2 * o.stages) o.stages /= 2;
            if (!info->has_backward || cgp_plan_options_stages(&o) > cgp_model_layers(model))
                continue;
            assert_settled(model, specs[k], &o);
            size = (size + 1) % (int)(sizeof sizes / sizeof sizes[0]);
        }
        cgp_model_destroy(model);
    }
}

/* If a step has more than 50,000 actions (1,600 for zb-1p), the search simulates fewer balances.
 * Even then, the result is at least as fast as the balance whose largest stage is smallest. Every
 * search gives the same result. */
TEST_CASE(a_large_step_is_no_slower_than_balanced_stages) {
    static const struct {
        const char *schedule;
        int devices, chunks;
    } cases[] = {
        {"zb-h1", 16, 1100}, {"zb-v", 8, 1100}, {"interleaved", 8, 1700}, {"zb-1p", 8, 80}};
    cgp_model_spec spec = cgp_model_spec_default();
    cgp_model *model = NULL;
    assert_ok(cgp_model_spec_parse(&spec, "gpt2:layers=40,width=16,heads=2,vocab=900,seq=8"));
    assert_ok(cgp_model_spec_create(&model, &spec));
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        int balance[2][MAX_STAGES], stages[MAX_STAGES];
        cgp_plan_options o = cgp_plan_options_default();
        o.schedule = cases[k].schedule;
        o.stages = cases[k].devices;
        o.batch = o.chunks = cases[k].chunks;
        const int n = cgp_plan_options_stages(&o);
        cgp_layer_cost *costs = flops_of(model, &o);
        for (int i = 0; i < 2; i++)
            assert_ok(cgp_balance_for_plan(model, &o, CGP_BALANCE_MAKESPAN, i ? costs : NULL,
                                           balance[i]));
        assert_memory_equal(balance[0], balance[1], (size_t)n * sizeof **balance);
        assert_ok(cgp_balance_by_flops(model, n, stages));
        const double found = planned(model, &o, (rows){costs, NULL}, balance[0]);
        const double plain = planned(model, &o, (rows){costs, NULL}, stages);
        assert_true(found <= plain);
        free(costs);
    }
    cgp_model_destroy(model);
}

/* --- ties --- */

/* Make twelve equal layers for four stages. A layer saves 1 MiB and takes no time. */
static cgp_model *twelve_layers(cgp_plan_options *o, cgp_layer_cost *costs) {
    *o = cgp_plan_options_default();
    o->stages = 4;
    o->batch = o->chunks = 8;
    for (int i = 0; i < 12; i++)
        costs[i] = (cgp_layer_cost){.saved_bytes = 1 << 20};
    return row_of_layers(NULL, 12);
}

/* With one micro-batch, or with layers that take no time, all balances have the same makespan. */
TEST_CASE(ties_are_broken_by_memory_then_evenness) {
    cgp_layer_cost costs[12];
    int balance[4];
    cgp_plan_options o;
    cgp_model *model = twelve_layers(&o, costs);
    assert_ok(cgp_balance_for_plan(model, &o, CGP_BALANCE_MAKESPAN, costs, balance));
    /* stage j saves 4 - j micro-batches, so the stages save 4 x 1, 3 x 2, 2 x 3 and 1 x 6 MiB */
    assert_memory_equal(balance, ((int[]){1, 2, 3, 6}), sizeof balance);
    /* the first layer is heavy; the other layers are divided evenly among the other stages */
    memset(costs, 0, sizeof costs);
    for (int i = 0; i < 12; i++)
        costs[i].forward_seconds = i == 0 ? 100 : 1;
    o.batch = o.chunks = 1;
    assert_ok(cgp_balance_for_plan(model, &o, CGP_BALANCE_MAKESPAN, costs, balance));
    assert_int_equal(balance[0], 1);
    for (int j = 1; j < 4; j++)
        assert_in_range(balance[j], 3, 4);
    /* with forward only and no times, all stages have equally many layers */
    memset(costs, 0, sizeof costs);
    o.inference = true;
    assert_ok(cgp_balance_for_plan(model, &o, CGP_BALANCE_MAKESPAN, costs, balance));
    for (int j = 0; j < 4; j++)
        assert_int_equal(balance[j], 3);
    cgp_model_destroy(model);
}

/* A balance by memory minimizes the memory of the fullest device, and does not depend on times. */
TEST_CASE(the_fullest_device_is_least_for_a_balance_by_memory) {
    cgp_layer_cost costs[12];
    int balance[4];
    cgp_plan_options o;
    cgp_model *model = twelve_layers(&o, costs);
    for (int i = 0; i < 12; i++)
        costs[i].forward_seconds = 1 + i;
    assert_ok(cgp_balance_for_plan(model, &o, CGP_BALANCE_MEMORY, costs, balance));
    assert_memory_equal(balance, ((int[]){1, 2, 3, 6}), sizeof balance);
    cgp_model_destroy(model);
}

/* Frozen parameters have no gradient and no optimizer state. */
TEST_CASE(frozen_bytes_are_counted_once) {
    cgp_layer_cost costs[12];
    int balance[4];
    cgp_plan_options o;
    cgp_model *model = twelve_layers(&o, costs);
    for (int i = 0; i < 12; i++)
        costs[i] = (cgp_layer_cost){.parameter_bytes = 4 * 4 * 4};
    assert_ok(cgp_model_freeze(model, "l[0-5].*"));
    o.stages = 2;
    o.optim.momentum = 0.9; /* a trained parameter takes 3 times its bytes */
    assert_ok(cgp_balance_for_plan(model, &o, CGP_BALANCE_MEMORY, costs, balance));
    assert_memory_equal(balance, ((int[]){8, 4}), 2 * sizeof *balance);
    cgp_balance_size_options size = cgp_balance_size_options_default();
    size.parameter_scale = 1000;
    assert_ok(cgp_balance_by_size(model, &size, 2, balance));
    assert_memory_equal(balance, ((int[]){9, 3}), 2 * sizeof *balance);
    cgp_model_destroy(model);
}

/* --- the simulation inside the search --- */

static cgp_status copy_table(void *self, const int *cuts, cgp_schedule **out) {
    const cgp_schedule *schedule = cgp_plan_schedule(self);
    (void)cuts;
    return cgp__schedule_part(out, schedule, cgp_schedule_chunks(schedule));
}

static void compare_simulations(uint64_t *state, const cgp_model *model,
                                const cgp_plan_options *o) {
    const int layers = cgp_model_layers(model), stages = cgp_plan_options_stages(o);
    cgp_layer_cost costs[32];
    cgp__layer_sums sums = {0};
    cgp__objective objective = {0};
    cgp_plan *plan = NULL;
    cgp__value value;
    int cuts[MAX_STAGES + 1] = {0};
    int64_t spent = 0, path[MAX_STAGES], all = 0;
    double total = 0;
    random_costs(state, costs, layers);
    costs[0].forward_seconds += 1;
    for (int i = 0; i < layers; i++)
        total += costs[i].forward_seconds;
    assert_ok(cgp_plan_create(&plan, model, o));
    for (int j = 0; j < stages; j++)
        cuts[j + 1] = cuts[j] + cgp_plan_balance(plan)[j];
    const cgp__layer_use use = {.samples = 1,
                                .chunks = cgp_plan_chunks(plan),
                                .parameter_scale = 2,
                                .selective = cgp_recompute_is_selective(o->recompute)};
    assert_ok(cgp__layer_sums_create(&sums, model, &(cgp__device_costs){.rows = costs}, &use));
    assert_ok(cgp__objective_create(&objective, &sums, &(cgp__schedule_source){copy_table, plan, 0},
                                    NULL));
    assert_ok(cgp__objective_evaluate(&objective, cuts, &CGP__REJECTED, &value, &spent));
    assert_ok(cgp__objective_critical(&objective, cuts, path));
    for (int j = 0; j < stages; j++)
        all += path[j];
    assert_int_equal(all, value.key[1]); /* messages take no time, so the path has no gaps */
    const double scale = (double)sums.time[CGP__TIME_F][layers] / total;
    const double expected = makespan_of(plan, o, (rows){costs, NULL}) * scale;
    assert_true(fabs((double)value.key[1] - expected) <= 1e-9 * expected);
    cgp__objective_release(&objective);
    cgp__layer_sums_release(&sums);
    cgp_plan_destroy(plan);
}

/* The test uses graphs with skips, and with layers that do not read the previous layer's output. */
TEST_CASE(the_search_simulates_what_a_plan_does) {
    uint64_t state = test_seed();
    for (int round = 0; round < test_scaled(300); round++) {
        const test_sizes sizes = {.layers = test_between(&state, 1, 8),
                                  .sequence = 4,
                                  .width = 4,
                                  .heads = 2,
                                  .vocab = 7,
                                  .rough = true};
        cgp_model *model = test_random_graph(&state, &sizes);
        const cgp_schedule_info *info = NULL;
        cgp_plan_options o;
        while (!info || !info->has_backward)
            info = cgp_schedule_info_at(test_between(&state, 0, 12));
        if (draw(&state, info, cgp_model_layers(model), &o)) compare_simulations(&state, model, &o);
        cgp_model_destroy(model);
    }
}

/* --- the balance by device --- */

static int64_t largest_device(const cgp__device_row *row, const int *cuts) {
    int64_t load[MAX_STAGES] = {0}, max = 0;
    for (int j = 0; j < row->stages; j++) {
        assert_true(cuts[j] < cuts[j + 1]);
        const int at = row->row_of ? row->row_of[row->device_of[j]] * (row->layers + 1) : 0;
        load[row->device_of[j]] += row->sums[at + cuts[j + 1]] - row->sums[at + cuts[j]];
    }
    for (int d = 0; d < row->devices; d++)
        max = load[d] > max ? load[d] : max;
    return max;
}

static int64_t least_of_all(const cgp__device_row *row) {
    int balance[MAX_STAGES], cuts[MAX_STAGES + 1] = {0};
    int64_t least = INT64_MAX;
    first_balance(balance, row->layers, row->stages);
    do {
        for (int j = 0; j < row->stages; j++)
            cuts[j + 1] = cuts[j] + balance[j];
        const int64_t largest = largest_device(row, cuts);
        least = largest < least ? largest : least;
    } while (next_balance(balance, row->layers, row->stages));
    return least;
}

/* Place stages on devices. If `kind` is 0, stage j is on device j. Kind 1 is V-shaped: it goes
 * forth and back over the devices. Kind 2 is round-robin. In kind 3, stages after the first
 * `devices` stages are on random devices. */
static void place(uint64_t *state, int kind, int stages, int devices, int *device_of) {
    for (int j = 0; j < stages; j++)
        device_of[j] = kind == 1   ? (j < devices ? j : stages - 1 - j)
                       : kind == 3 ? (j < devices ? j : test_between(state, 0, devices - 1))
                                   : j % devices;
}

/* Costs are small integers with many zeros, so that ties and single heavy layers are frequent. */
TEST_CASE(the_largest_device_is_least) {
    uint64_t state = test_seed();
    int missed = 0, rounds = test_scaled(3000);
    for (int round = 0; round < rounds; round++) {
        const int kind = round % 4, devices = test_between(&state, 1, kind == 0 ? 6 : 4);
        const int stages = kind == 0   ? devices
                           : kind == 1 ? 2 * devices
                                       : devices * test_between(&state, 1, 3);
        const int layers = stages + test_between(&state, 0, stages > 8 ? 2 : 5);
        int64_t sums[6 * 32] = {0}, largest = 0;
        int device_of[MAX_STAGES], cuts[MAX_STAGES + 1], row_of[6];
        const bool unequal = test_between(&state, 0, 1);
        const cgp__device_row row = {sums,   layers,  device_of,
                                     stages, devices, unequal ? row_of : NULL};
        bool exact = false;
        const int heaviest = test_between(&state, 0, 9);
        place(&state, kind, stages, devices, device_of);
        for (int d = 0; d < devices; d++)
            row_of[d] = test_between(&state, 0, devices - 1);
        for (int k = 0; k < devices * layers; k++) {
            int64_t *sum = &sums[k + k / layers];
            sum[1] = sum[0] + (test_between(&state, 0, 2) ? test_between(&state, 0, heaviest) : 0);
        }
        assert_ok(cgp__balance_devices(&row, cuts, &largest, &exact));
        assert_int_equal(cuts[0], 0);
        assert_int_equal(cuts[stages], layers);
        assert_int_equal(largest, largest_device(&row, cuts));
        const int64_t least = least_of_all(&row);
        assert_true(kind > (unequal ? 0 : 1) || exact);
        assert_true(largest == least || !exact);
        assert_true(cgp__device_bound(&row) <= least);
        missed += largest != least;
    }
    /* for round-robin and random placement, and for a V of unequal devices, the search is
     * heuristic */
    assert_true(missed * 50 <= rounds);
}

TEST_CASE(a_v_of_many_layers_is_balanced_exactly) {
    enum { LAYERS = 500, DEVICES = 64 };
    int64_t sums[LAYERS + 1] = {0}, largest = 0;
    int device_of[2 * DEVICES], cuts[2 * DEVICES + 1];
    bool exact = false;
    const cgp__device_row row = {sums, LAYERS, device_of, 2 * DEVICES, DEVICES, NULL};
    for (int i = 0; i < LAYERS; i++)
        sums[i + 1] = sums[i] + 1000 + i % 7;
    place(NULL, 1, 2 * DEVICES, DEVICES, device_of);
    assert_ok(cgp__balance_devices(&row, cuts, &largest, &exact));
    assert_true(exact);
    assert_in_range(largest, 8 * 1000, 8 * 1004); /* a device has 7 or 8 layers */
}

/* --- options --- */

TEST_CASE(a_given_balance_is_kept_and_bad_calls_are_refused) {
    cgp_model *model = row_of_layers(NULL, 6);
    cgp_layer_cost costs[6] = {{0}};
    cgp_plan_options o = cgp_plan_options_default();
    int balance[3] = {9, 9, 9};
    o.stages = 3;
    o.balance = (int[]){4, 1, 1};
    costs[2].weight_seconds = -1;
    assert_status(cgp_balance_for_plan(model, &o, CGP_BALANCE_MAKESPAN, costs, balance),
                  CGP_EINVAL);
    assert_message("balance: layer 2: expected times of 0 or more, got -1");
    costs[2].weight_seconds = INFINITY;
    assert_status(cgp_balance_for_plan(model, &o, CGP_BALANCE_MAKESPAN, costs, balance),
                  CGP_EINVAL);
    for (int i = 0; i < 6; i++)
        costs[i].weight_seconds = 1e308;
    assert_status(cgp_balance_for_plan(model, &o, CGP_BALANCE_MAKESPAN, costs, balance),
                  CGP_EINVAL);
    assert_message("balance: the costs add up to more than a number holds");
    assert_status(cgp_balance_for_plan(model, &o, (cgp_balance_goal)2, NULL, balance), CGP_EINVAL);
    assert_message("balance: expected a cgp_balance_goal, got number 2");
    o.stages = 7;
    assert_status(cgp_balance_for_plan(model, &o, CGP_BALANCE_MAKESPAN, NULL, balance), CGP_EINVAL);
    assert_int_equal(balance[0], 9);
    o.stages = 3; /* `o.balance` is ignored here */
    assert_ok(cgp_balance_for_plan(model, &o, CGP_BALANCE_MAKESPAN, NULL, balance));
    assert_true(balance[0] < 4);
    cgp_layer_cost *flops = flops_of(model, &o);
    (void)planned(model, &o, (rows){flops, NULL}, o.balance);
    free(flops);
    cgp_model_destroy(model);
}
