/* SPDX-License-Identifier: Apache-2.0 */
/* test_transport_registry.c -- transports are found by name. */
#include "plugin/find.h"
#include "loopback.h"
#include "support.h"
#include "transport/transport.h"

TEST_CASE(a_transport_is_found_by_its_name) {
    const cgp_transport *found = NULL;
    assert_ok(cgp__transport_find("inproc", &found));
    assert_ptr_equal(found, &cgp__transport_inproc);
    assert_status(cgp__transport_find("improc", &found), CGP_EINVAL);
    assert_message("transport: expected inproc, got \"improc\" (did you mean inproc?)");
    assert_ok(cgp__transport_add(&loopback));
    assert_ok(cgp__transport_add(&loopback)); /* adding a transport twice is allowed */
    assert_ok(cgp__transport_find("loopback", &found));
    assert_ptr_equal(found, &loopback);
    assert_status(cgp__transport_find("tin cans", &found), CGP_EINVAL);
    assert_message("transport: expected inproc or loopback, got \"tin cans\"");
    assert_ptr_equal(found, &loopback);
}

TEST_CASE(bad_tables_are_refused) {
    static cgp_transport table;
    table = cgp__transport_inproc;
    assert_status(cgp__transport_add(&table), CGP_EINVAL);
    assert_message("transport inproc: expected a name of its own, got that of another");
    table.name = "";
    assert_status(cgp__transport_add(&table), CGP_EINVAL);
    assert_message("transport: expected a name, got none");
    const size_t first = offsetof(cgp_transport, communicator_create);
    for (size_t at = first; at < sizeof table; at += sizeof(void *)) {
        table = cgp__transport_inproc;
        table.name = "mute";
        memset((char *)&table + at, 0, sizeof(void *));
        assert_status(cgp__transport_add(&table), CGP_EINVAL);
        assert_message("transport mute: expected all functions, got NULL for some");
    }
    table.struct_size -= sizeof(void *);
    assert_status(cgp__transport_add(&table), CGP_EINVAL);
    assert_message("(built for another version of cgpipe)");
}

TEST_CASE(a_full_registry_takes_no_more) {
    static cgp_transport tables[20];
    static char names[20][8];
    cgp_status status = CGP_OK;
    int n = 0;
    assert_ok(cgp__transport_add(&loopback));
    for (; n < 20 && status == CGP_OK; n++) {
        snprintf(names[n], sizeof names[n], "t%d", n);
        tables[n] = cgp__transport_inproc;
        tables[n].name = names[n];
        status = cgp__transport_add(&tables[n]);
    }
    assert_int_equal(n, 15); /* 14 transports fit beside inproc and loopback; the next one fails */
    assert_status(status, CGP_ELIMIT);
}
