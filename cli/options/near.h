/* SPDX-License-Identifier: Apache-2.0 */
/* near.h -- suggest an option in place of an unknown option. */
#ifndef CGPIPE_CLI_NEAR_H
#define CGPIPE_CLI_NEAR_H

/* Return the name of the command's option that other programs call `name`; NULL: none. */
const char *cli_option_by_meaning(const char *name, unsigned command);

/* Return the name of the command's option that is nearest to an unknown `name`, by meaning or
 * spelling; NULL: none is near. */
const char *cli_option_nearest(const char *name, unsigned command);

#endif
