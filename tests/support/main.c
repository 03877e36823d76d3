/* SPDX-License-Identifier: Apache-2.0 */
/* main.c -- main() for test programs that do not define main(). This main() is in a separate file,
 * so that the linker omits it from programs that define their own. */
#include "support.h"

int main(void) {
    return test_run();
}
