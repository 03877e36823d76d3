/* SPDX-License-Identifier: Apache-2.0 */
/* test_schedule_csv.c -- tests that schedules are written as CSV and read back, in both dialects,
 * and that wrong texts are refused. */
#include "schedules.h"

static cgp_schedule *parse(const char *text) {
    cgp_schedule *s = NULL;
    assert_ok(cgp_schedule_from_csv(&s, "x.csv", text, strlen(text)));
    return s;
}

static void assert_refused(const char *text, const char *message) {
    cgp_schedule *s = NULL;
    assert_status(cgp_schedule_from_csv(&s, "x.csv", text, strlen(text)), CGP_EFORMAT);
    assert_string_equal(cgp_message(), message);
    assert_null(s);
}

static void assert_csv(const cgp_schedule *s, cgp_csv dialect, const char *expected) {
    char *text = NULL;
    assert_ok(cgp_schedule_to_csv(s, dialect, &text));
    assert_string_equal(text, expected);
    free(text);
}

/* --- written --- */

TEST_CASE(a_column_is_a_tick) {
    cgp_schedule *s = test_generate("1f1b", 2, 3, 0);
    assert_csv(s, CGP_CSV_COMPUTE,
               "0F0,0F1,,0B0,0F2,0B1,,0B2\n"
               ",1F0,1B0,1F1,1B1,1F2,1B2\n");
    cgp_schedule_destroy(s);
}

TEST_CASE(transfers_are_written_in_list_order) {
    cgp_schedule *s = test_generate("gpipe", 2, 2, 0);
    static const char expected[] = "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                                   "1RECV_F0,1F0,1RECV_F1,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n";
    assert_csv(s, CGP_CSV_TRANSFERS, expected);
    test_lower(s);
    assert_csv(s, CGP_CSV_TRANSFERS, expected);
    assert_csv(s, CGP_CSV_COMPUTE, "0F0,0F1,,,0B0,0B1\n,1F0,1F1,1B0,1B1\n");
    cgp_schedule_destroy(s);
}

/* Stages 1 and 2 are on one device. An overlapped forward/backward pair takes one CSV cell. */
TEST_CASE(transfers_within_a_device_are_left_out) {
    cgp_schedule *s = test_generate("dualpipe-v", 2, 4, 0);
    char *text = NULL;
    assert_ok(cgp_schedule_to_csv(s, CGP_CSV_TRANSFERS, &text));
    assert_null(strstr(text, "1SEND_F"));
    assert_null(strstr(text, "2RECV_F"));
    assert_null(strstr(text, "2SEND_B"));
    assert_non_null(strstr(text, "3RECV_F2,0RECV_B0,(3F2;0B0)OVERLAP_F_B,3B2,3SEND_B2"));
    free(text);
    assert_ok(cgp_schedule_to_csv(s, CGP_CSV_COMPUTE, &text));
    assert_non_null(strstr(text, "3F1,(0F3;3B1)OVERLAP_F_B,,(3F2;0B0)OVERLAP_F_B,,3B2"));
    free(text);
    cgp_schedule_destroy(s);
}

TEST_CASE(edges_that_skip_stages_cannot_be_written) {
    const cgp_edge edges[] = {{0, 1}, {1, 2}, {0, 2}, {2, 1}, {1, 0}};
    cgp_schedule *s = test_generate("gpipe", 3, 2, 0);
    char *text = NULL;
    assert_ok(cgp_schedule_lower(s, edges, 5));
    assert_status(cgp_schedule_to_csv(s, CGP_CSV_TRANSFERS, &text), CGP_EINVAL);
    assert_message("got 0 -> 2 (leave the transfers out)");
    assert_null(text);
    assert_csv(s, CGP_CSV_COMPUTE,
               "0F0,0F1,,,,,0B0,0B1\n"
               ",1F0,1F1,,,1B0,1B1\n"
               ",,2F0,2F1,2B0,2B1\n");
    cgp_schedule_destroy(s);
}

/* --- read --- */

static void assert_same(const cgp_schedule *a, const cgp_schedule *b) {
    assert_int_equal(cgp_schedule_devices(a), cgp_schedule_devices(b));
    assert_int_equal(cgp_schedule_stages(a), cgp_schedule_stages(b));
    assert_int_equal(cgp_schedule_chunks(a), cgp_schedule_chunks(b));
    for (int d = 0; d < cgp_schedule_devices(a); d++) {
        int n, m;
        const cgp_action *x = cgp_schedule_actions(a, d, &n);
        const cgp_action *y = cgp_schedule_actions(b, d, &m);
        assert_int_equal(n, m);
        for (int i = 0; i < n; i++) {
            assert_int_equal(x[i].kind, y[i].kind);
            assert_int_equal(x[i].stage, y[i].stage);
            assert_int_equal(x[i].microbatch, y[i].microbatch);
            assert_int_equal(x[i].edge, y[i].edge);
            assert_int_equal(x[i].overlapped, y[i].overlapped);
        }
    }
}

TEST_CASE(every_schedule_comes_back_as_it_was_in_both_dialects) {
    const cgp_schedule_info *info;
    for (int k = 0; (info = cgp_schedule_info_at(k)); k++) {
        for (int n = 1; n <= 4; n++) {
            for (int m = 2 * n; m <= 2 * n + 3; m++) {
                for (int lowered = 0; lowered < 2; lowered++) {
                    cgp_schedule *s = test_generate(info->name, n, m, 0), *back;
                    char *text = NULL;
                    if (info->has_backward && m % 2)
                        assert_ok(cgp_schedule_recompute(s, CGP_RECOMPUTE_EXCEPT_LAST));
                    if (lowered) assert_ok(cgp_schedule_lower_chain(s));
                    assert_ok(cgp_schedule_to_csv(s, lowered ? CGP_CSV_TRANSFERS : CGP_CSV_COMPUTE,
                                                  &text));
                    back = parse(text);
                    if (lowered && n == 1) assert_ok(cgp_schedule_lower_chain(back));
                    assert_same(s, back);
                    free(text);
                    cgp_schedule_destroy(back);
                    cgp_schedule_destroy(s);
                }
            }
        }
    }
}

/* Blanks between actions have no meaning. */
TEST_CASE(blanks_empty_lines_and_weights_spread_out_are_no_matter) {
    cgp_schedule *plain = parse("0F0,0B0\n1F0,1B0\n");
    static const char *const others[] = {
        "0F0,0B0\n1F0,1B0",
        " 0F0 ,\t0B0\r\n,,1F0,1B0,,\r\n\n\n",
        "0UNSHARD,0F0,0B0,0REDUCE_GRAD,0RESHARD\n1F0,1B0",
        "00F0,0B00\n1F0,1B0\n , \n",
        "0UNSHARD,0F0,0SEND_F0,0WAIT_SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,"
        "0RESHARD\n"
        "1RECV_F0,1F0,1B0,1SEND_B0,1WAIT_SEND_B0",
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        cgp_schedule *s = parse(others[i]), *lowered = cgp__copy_lowered(plain);
        assert_same(strstr(others[i], "SEND") ? lowered : plain, s);
        cgp_schedule_destroy(lowered);
        cgp_schedule_destroy(s);
    }
    cgp_schedule_destroy(plain);
}

/* Spreadsheets write CSV files in the format of RFC 4180. Such a file may begin with a byte order
 * mark. */
TEST_CASE(cells_in_quotes_and_a_byte_order_mark_are_read) {
    cgp_schedule *plain = parse("0F0,1F0,(0F1;1B0)OVERLAP_F_B,1F1,0B0,1B1,0B1\n");
    static const char *const others[] = {
        "\xef\xbb\xbf"
        "0F0,1F0,(0F1;1B0)OVERLAP_F_B,1F1,0B0,1B1,0B1\r\n",
        "\"0F0\",\"1F0\",\"(0F1;1B0)OVERLAP_F_B\",1F1,0B0,\"\",1B1,\"0B1\"\r\n",
        "\xef\xbb\xbf\"0F0\" , \"1F0\"\t,\" (0F1 ; 1B0)OVERLAP_F_B\",1F1,\" "
        "0B0\",\"\n\",1B1,\"0B1\"",
        "0F0,1F0,(0F1; 1B0 )OVERLAP_F_B,1F1,0B0,1B1,0B1\n\"\"\n\"\",\"\"\n",
    };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        cgp_schedule *s = parse(others[i]);
        assert_same(plain, s);
        cgp_schedule_destroy(s);
    }
    cgp_schedule_destroy(plain);
}

TEST_CASE(quotes_that_do_not_end_are_refused) {
    assert_refused("0F0,\"0B0", "x.csv: row 1, column 2, \"\"0B0\": expected a quote at the end "
                                "of the cell");
    assert_refused("0F0\n\"1F0,1B0\n",
                   "x.csv: row 2, column 1, \"\"1F0,1B0?\": expected a quote at "
                   "the end of the cell");
    assert_refused("\"0F0\"0B0,0B0",
                   "x.csv: row 1, column 1, \"\"0F0\"0B0\": expected a comma or the end of the "
                   "line behind the quotes");
    assert_refused("\"0F0,0B0\"", "x.csv: row 1, column 1, \"0F0,0B0\": expected a micro-batch "
                                  "after the action, as in 2F0");
    assert_refused("\"0F\"\"0\"", "x.csv: row 1, column 1, \"0F\"\"0\": expected a micro-batch "
                                  "after the action, as in 2F0");
    assert_refused("\"", "x.csv: row 1, column 1, \"\"\": expected a quote at the end of the cell");
}

TEST_CASE(other_encodings_are_refused) {
    static const struct {
        const char *bytes;
        size_t size;
    } marks[] = {{"\xff\xfe"
                  "0\0F\0"
                  "0\0",
                  8},
                 {"\xfe\xff\0"
                  "0\0F\0"
                  "0",
                  8},
                 {"\xff\xfe\0\0"
                  "0\0\0\0",
                  8},
                 {"\0\0\xfe\xff\0\0\0"
                  "0",
                  8}};
    for (size_t i = 0; i < sizeof marks / sizeof marks[0]; i++) {
        cgp_schedule *s = NULL;
        assert_status(cgp_schedule_from_csv(&s, "x.csv", marks[i].bytes, marks[i].size),
                      CGP_EFORMAT);
        assert_string_equal(cgp_message(),
                            "x.csv: begins with the byte order mark of UTF-16 or UTF-32, expected "
                            "UTF-8 or ASCII (save it as UTF-8)");
        assert_null(s);
    }
}

TEST_CASE(a_schedule_from_csv_can_be_checked_and_simulated) {
    cgp_schedule *s = parse("0F0,0F1,2F0,2F1,2I0,0I0,2B1,2W0,0B1,0W0\n"
                            "1F0,1F1,3F0,3F1,3B0,1B0,3B1,1B1\n");
    assert_int_equal(cgp_schedule_devices(s), 2);
    assert_int_equal(cgp_schedule_stages(s), 4);
    assert_string_equal(cgp_schedule_name(s), "x.csv");
    assert_ok(cgp_schedule_lower_chain(s));
    assert_ok(cgp_schedule_check(s, NULL));
    cgp_schedule_destroy(s);
    s = parse("0F0,1F0,1B0,0B0\n"); /* no transfers are needed */
    assert_ok(cgp_schedule_lower_chain(s));
    assert_ok(cgp_schedule_check(s, NULL));
    cgp_schedule_destroy(s);
}

/* --- refused --- */

TEST_CASE(a_cell_that_is_no_action_is_named) {
#define ACTION "expected one of F B I W R SEND_F RECV_F SEND_B RECV_B as action"
#define FORM "expected a stage, an action and a micro-batch, as in 2F0"
#define PAIR "expected a forward and a backward in a pair"
    assert_refused("0F0,0X1\n", "x.csv: row 1, column 2, \"0X1\": " ACTION);
    assert_refused("0F0\n\n, ,0f0 ", "x.csv: row 3, column 3, \"0f0\": " ACTION);
    assert_refused("F0", "x.csv: row 1, column 1, \"F0\": " FORM);
    assert_refused("0F0;0B0", "x.csv: row 1, column 1, \"0F0;0B0\": expected a micro-batch after "
                              "the action, as in 2F0");
    assert_refused("0F", "x.csv: row 1, column 1, \"0F\": expected a micro-batch after the "
                         "action, as in 2F0");
    assert_refused("0F-1", "x.csv: row 1, column 1, \"0F-1\": expected a micro-batch after the "
                           "action, as in 2F0");
    assert_refused("123456789F0", "x.csv: row 1, column 1, \"123456789F0\": " FORM);
    assert_refused("0UNSHARD0", "x.csv: row 1, column 1, \"0UNSHARD0\": " ACTION);
    assert_refused("0WAIT_SEND_F", "x.csv: row 1, column 1, \"0WAIT_SEND_F\": expected a "
                                   "micro-batch after the action, as in 2F0");
    assert_refused("0WAIT_SEND_B0x", "x.csv: row 1, column 1, \"0WAIT_SEND_B0x\": expected a "
                                     "micro-batch after the action, as in 2F0");
    assert_refused("0WAIT_SEND0", "x.csv: row 1, column 1, \"0WAIT_SEND0\": " ACTION);
    assert_refused("0F0\x01", "x.csv: row 1, column 1, \"0F0?\": expected a micro-batch after "
                              "the action, as in 2F0");
    assert_refused("(0F0;1B0)", "x.csv: row 1, column 1, \"(0F0;1B0)\": expected a pair as in "
                                "(0F7;7B3)OVERLAP_F_B");
    assert_refused("(0B0;1F0)OVERLAP_F_B",
                   "x.csv: row 1, column 1, \"(0B0;1F0)OVERLAP_F_B\": " PAIR);
    assert_refused("(0F1;0R0)OVERLAP_F_B",
                   "x.csv: row 1, column 1, \"(0F1;0R0)OVERLAP_F_B\": " PAIR);
    assert_refused("(0F1;0B0;0B1)OVERLAP_F_B",
                   "x.csv: row 1, column 1, \"(0F1;0B0;0B1)OVERLAP_F_B\": " PAIR);
    assert_refused("(0F1;0R0;0R0;0B0)OVERLAP_F_B",
                   "x.csv: row 1, column 1, \"(0F1;0R0;0R0;0B0)OVERLAP_F_B\": " PAIR);
    assert_refused("(0F1;)OVERLAP_F_B", "x.csv: row 1, column 1, \"(0F1;)OVERLAP_F_B\": " FORM);
    assert_refused("", "x.csv: expected a line of actions per device, got none");
    assert_refused(" ,\n,,\n", "x.csv: expected a line of actions per device, got none");
}

/* In older tables B means I, and BW means B. If a table contains a BW, or both B and W of one
 * micro-batch, the reader takes it for an older table. */
TEST_CASE(older_letters_are_read) {
    static const char *const texts[][2] = {
        {"0F0,0F1,0B0,0W0,0BW1", "0F0,0F1,0I0,0W0,0B1"},
        {"0F0,0BW0", "0F0,0B0"},
        {"0F0,0F1,0B0,0B1,0W0,0W1\n1F0,1B0,1F1,1B1,1W1,1W0",
         "0F0,0F1,0I0,0I1,0W0,0W1\n1F0,1I0,1F1,1I1,1W1,1W0"},
        {"0F0,0F1,1F0,(1F1;1B0)OVERLAP_F_B,0B0,0W0,1W0,1BW1,0BW1",
         "0F0,0F1,1F0,(1F1;1I0)OVERLAP_F_B,0I0,0W0,1W0,1B1,0B1"},
        {"0F0,0SEND_F0,0RECV_B0,0B0,0W0\n1RECV_F0,1F0,1BW0,1SEND_B0",
         "0F0,0SEND_F0,0RECV_B0,0I0,0W0\n1RECV_F0,1F0,1B0,1SEND_B0"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        cgp_schedule *older = parse(texts[i][0]), *now = parse(texts[i][1]);
        assert_same(now, older);
        cgp_schedule_destroy(now);
        cgp_schedule_destroy(older);
    }
    assert_refused("0F0,0F1,0B0,0W0,0B1",
                   "x.csv: row 1, column 5, \"0B1\": expected a W of it as well, as B is the older "
                   "letter for I in a file that has BW, or B and W of one micro-batch");
    assert_refused("0F0,0B0,0BW0",
                   "x.csv: row 1, column 2, \"0B0\": expected a W of it as well, as B is the older "
                   "letter for I in a file that has BW, or B and W of one micro-batch");
    cgp_schedule *s = parse("0F0,0I0,0B0,0W0"); /* B is read as I, so I occurs twice */
    assert_ok(cgp_schedule_lower_chain(s));
    assert_status(cgp_schedule_check(s, NULL), CGP_EINVAL);
    cgp_schedule_destroy(s);
}

/* In tables of PyTorch's Schedule1F1B, the micro-batches of the last stage's forwards are numbered
 * from 1. */
TEST_CASE(forwards_of_the_last_stage_may_count_from_one) {
    static const char *const texts[][2] = {
        {"0F1,0B0,0F2,0B1", "0F0,0B0,0F1,0B1"},
        {"0F1,0B0", "0F0,0B0"},
        {"0F0,0F1,0B0,0B1\n1F1,1B0,1F2,1B1,1REDUCE_GRAD", "0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        cgp_schedule *one = parse(texts[i][0]), *zero = parse(texts[i][1]);
        assert_same(zero, one);
        cgp_schedule_destroy(zero);
        cgp_schedule_destroy(one);
    }
    assert_refused("0F1,0F2,0B0,0B1\n1F0,1B0,1F1,1B1",
                   "x.csv: expected every micro-batch, 0 to 2, on every stage, 0 to 1, got no 0F0");
    assert_refused("0F0,0F1,0B0,0B1\n1F1,1B1,1F2,1B2",
                   "x.csv: expected every micro-batch, 0 to 2, on every stage, 0 to 1, got no 0F2");
    assert_refused("0F1,0F2",
                   "x.csv: expected every micro-batch, 0 to 2, on every stage, 0 to 0, got no 0F0");
    assert_refused("0F0,0F1,0B0,0B1\n1F1,1B0,1F3,1B1",
                   "x.csv: expected every micro-batch, 0 to 2, on every stage, 0 to 1, got no 0F2");
}

TEST_CASE(stages_and_micro_batches_are_all_there) {
    assert_refused("0F0,0F2", "x.csv: expected every micro-batch, 0 to 2, on every stage, 0 to 0, "
                              "got no 0F1");
    assert_refused("0F0,2F0", "x.csv: expected every micro-batch, 0 to 0, on every stage, 0 to 2, "
                              "got no 1F0");
    assert_refused("0F0,99999999F99999999",
                   "x.csv: expected every micro-batch, 0 to 99999999, on every stage, 0 to "
                   "99999999, got no 0F1");
    assert_refused("0F0\n\n1F0", "x.csv: row 2: expected the actions of a device, got none");
    assert_refused("0F0\n0UNSHARD\n1F0",
                   "x.csv: row 2: expected the actions of a device, got none");
    assert_refused("0B0", "x.csv: expected every micro-batch, 0 to 0, on every stage, 0 to 0, "
                          "got no 0F0");
    assert_refused("0F0\n0B0", "x.csv: row 2, column 1, \"0B0\": expected all of a stage in one "
                               "row");
}

TEST_CASE(transfers_lead_somewhere) {
    assert_refused("0F0,0SEND_F0",
                   "x.csv: row 1, column 2, \"0SEND_F0\": there is no stage after it");
    assert_refused("0RECV_F0,0F0\n1F0",
                   "x.csv: row 1, column 1, \"0RECV_F0\": there is no stage before it");
}

/* The checker of this library finds the deadlock in this table. PyTorch's loader accepts the table,
 * and the deadlock occurs only when the schedule runs. */
TEST_CASE(a_deadlock_in_a_text_is_found_before_it_runs) {
    cgp_schedule *s = parse("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n");
    assert_ok(cgp_schedule_lower_chain(s));
    assert_status(cgp_schedule_check(s, NULL), CGP_EINVAL);
    assert_message("schedule: deadlock: device 0 waits at 0RECV_B0 for 1SEND_B0; device 1 waits "
                   "at 1RECV_F1 for 0SEND_F1");
    cgp_schedule_destroy(s);
}
