/* SPDX-License-Identifier: Apache-2.0 */
/* main.c -- main() of test programs without their own. It is in a file of its own, so that the
 * linker leaves it out of programs that have a main(). */
#include "support.h"

int main(void) {
    return test_run();
}
