/* weights.h -- parameters for a pipeline from a safetensors file, or from another pipeline. */
#ifndef CGPIPE_CLI_WEIGHTS_H
#define CGPIPE_CLI_WEIGHTS_H

#include <cgpipe/cgpipe.h>

#include <stdio.h>

/* A file that has all parameters of a model, and nothing else but attention masks. */
typedef struct cli_weights {
    cgp_safetensors *file;
    const cgp_model *model; /* Borrowed. */
    int *index;             /* [parameters] in the file */
} cli_weights;

/* Open and check. Names may come with or without "transformer.". */
CGP_MUST_CHECK cgp_status cli_weights_open(cli_weights *weights, const cgp_model *model,
                                           const char *path);
CGP_MUST_CHECK cgp_status cli_weights_load(cli_weights *weights, cgp_pipeline *pipeline);
void cli_weights_close(cli_weights *weights);

/* Copy all parameters from one pipeline of the model to another. */
CGP_MUST_CHECK cgp_status cli_weights_copy(cgp_pipeline *from, cgp_pipeline *to,
                                           const cgp_model *model);

#endif
