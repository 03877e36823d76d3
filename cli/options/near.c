/* SPDX-License-Identifier: Apache-2.0 */
/* near.c -- suggest an option in place of an unknown one. The suggestion has a similar spelling, or
 * has the unknown name in other programs or in an older cgpipe. */
#include "options/near.h"

#include "options/table.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Commas surround each name, so that strstr() finds whole names only. */
/* clang-format off */
static const struct {
    const char *names;
    cli_option_id option;
} meanings[] = {
    {",rate,learning-rate,base-lr,max-lr,", CLI_OPTION_LR},
    {",rate-schedule,lr-scheduler,lr-scheduler-type,lr-decay-style,scheduler,",
     CLI_OPTION_LR_SCHEDULE},
    {",rate-least,min-lr,eta-min,", CLI_OPTION_MIN_LR_RATIO},
    {",rate-interval,step-size,lr-decay-iters,", CLI_OPTION_LR_STEP_SIZE},
    {",rate-factor,gamma,lr-decay,", CLI_OPTION_LR_GAMMA},
    {",milestones,lr-steps,lr-decay-milestones,", CLI_OPTION_LR_MILESTONES},
    {",warmup-steps,warmup-iters,warmup-epochs,lr-warmup,lr-warmup-iters,lr-warmup-epochs,num-warmup-steps,", CLI_OPTION_WARMUP},
    {",warmup-lr,warmup-init-lr,lr-warmup-init,", CLI_OPTION_WARMUP_START},
    {",base-batch,base-batch-size,lr-base-size,", CLI_OPTION_LR_BATCH},
    {",recipe,config-file,config-path,yaml,params,experiment,", CLI_OPTION_CONFIG},
    {",micro-batches,microbatches,num-microbatches,n-microbatches,micro-batch,microbatch,"
     "gradient-accumulation-steps,gradient-accumulation,grad-accum,accumulation-steps,"
     "accumulate-grad-batches,", CLI_OPTION_CHUNKS},
    {",batch-size,batchsize,mini-batch,minibatch,mini-batch-size,global-batch-size,train-batch-size,bs,", CLI_OPTION_BATCH},
    {",iterations,iters,max-steps,max-iters,train-iters,num-steps,n-steps,updates,",
     CLI_OPTION_STEPS},
    {",num-epochs,n-epochs,max-epochs,num-train-epochs,train-epochs,passes,", CLI_OPTION_EPOCHS},
    {",gpus,num-gpus,n-gpus,ngpus,nproc-per-node,pipeline-parallel-size,"
     "pipeline-model-parallel-size,pp,pp-size,partitions,num-stages,n-stages,", CLI_OPTION_STAGES},
    {",data-parallel,data-parallel-size,dp,dp-size,ddp,replica,num-replicas,n-replicas,",
     CLI_OPTION_REPLICAS},
    {",zero,zero-1,zero1,zero-stage,distributed-optimizer,use-distributed-optimizer,"
     "sharded-optimizer,", CLI_OPTION_SHARD_OPTIMIZER},
    {",virtual-stages,num-layers-per-virtual-pipeline-stage,interleave,", CLI_OPTION_VIRTUAL},
    {",max-in-flight,inflight,zero-bubble-max-pending-backward,", CLI_OPTION_IN_FLIGHT},
    {",split,partition,layers-per-stage,", CLI_OPTION_BALANCE},
    {",device,num-devices,n-devices,backend,accelerator,", CLI_OPTION_DEVICES},
    {",threads,num-threads,n-threads,nthreads,omp-num-threads,", CLI_OPTION_THREADS_PER_DEVICE},
    {",device-memory,memory,max-memory,device-mem,gpu-memory,", CLI_OPTION_MEMORY_LIMIT},
    {",save-plan,write-plan,", CLI_OPTION_PLAN_OUT},
    {",load-plan,plan-file,", CLI_OPTION_PLAN},
    {",checkpointing,checkpoint-activations,activation-checkpointing,gradient-checkpointing,remat,"
     "recompute-granularity,recompute-activations,", CLI_OPTION_RECOMPUTE},
    {",dtype,bf16,fp16,tf32,allow-tf32,amp,mixed-precision,half,autocast,", CLI_OPTION_PRECISION},
    {",frozen,freeze-layers,freeze-parameters,frozen-parameters,", CLI_OPTION_FREEZE},
    {",winograd,conv,convolutions,conv-algorithm,", CLI_OPTION_CONVOLUTION},
    {",optim,opt,", CLI_OPTION_OPTIMIZER},
    {",wd,l2,decay,", CLI_OPTION_WEIGHT_DECAY},
    {",param-groups,parameter-group,param-group,no-decay,", CLI_OPTION_PARAMETER_GROUPS},
    {",clip-grad,clip-norm,grad-clip,grad-norm,max-grad-norm,max-norm,gradient-clipping,"
     "gradient-clip-val,", CLI_OPTION_CLIP},
    {",adam-beta1,", CLI_OPTION_BETA1},
    {",adam-beta2,", CLI_OPTION_BETA2},
    {",epsilon,adam-epsilon,adam-eps,", CLI_OPTION_EPS},
    {",random-seed,rng-seed,manual-seed,", CLI_OPTION_SEED},
    {",dropout-rate,drop,", CLI_OPTION_DROPOUT},
    {",dataset,data-path,data-dir,train-data,train-file,train-files,input,files,text,corpus,",
     CLI_OPTION_DATA},
    {",val,val-data,valid,valid-data,eval-data,dev,test-data,val-split,validation-split,",
     CLI_OPTION_VALIDATION},
    {",num-workers,n-workers,loaders,", CLI_OPTION_WORKERS},
    {",output,output-dir,out-dir,run-dir,save,save-dir,checkpoint-dir,log-dir,logdir,",
     CLI_OPTION_RUN},
    {",force,replace,restart,", CLI_OPTION_OVERWRITE},
    {",tb,tb-dir,tensorboard-dir,tensorboard-log-dir,logging-dir,report-to,",
     CLI_OPTION_TENSORBOARD},
    {",continue,resume-from,resume-from-checkpoint,auto-resume,", CLI_OPTION_RESUME},
    {",checkpoint,step,ckpt,load-step,", CLI_OPTION_FROM_STEP},
    {",save-interval,save-steps,checkpoint-every,checkpoint-interval,", CLI_OPTION_SAVE_EVERY},
    {",save-total-limit,keep-last,max-checkpoints,", CLI_OPTION_KEEP},
    {",eval-interval,eval-every,eval-steps,eval-iters,validate-every,val-every,val-interval,",
     CLI_OPTION_EVALUATE_EVERY},
    {",log-interval,log-every,logging-steps,print-every,", CLI_OPTION_INTERVAL},
    {",np,nproc,num-ranks,n-ranks,processes,num-processes,world-size,", CLI_OPTION_RANKS},
    {",max-restarts,retries,max-retries,", CLI_OPTION_RESTARTS},
    {",delay,restart-delay,pause,", CLI_OPTION_BACKOFF},
    {",grace-period,kill-after,", CLI_OPTION_GRACE},
    {",max-time,time-limit,exit-duration-in-mins,duration,", CLI_OPTION_MINUTES},
    {",max-tokens,max-new-tokens,max-length,num-tokens,tokens,characters,", CLI_OPTION_LENGTH},
    {",temp,", CLI_OPTION_TEMPERATURE},
    {",start,text,", CLI_OPTION_PROMPT},
    {",vocab,vocab-dir,tokenizer-dir,tokenizer-path,", CLI_OPTION_TOKENIZER},
    {",output,output-file,output-dir,", CLI_OPTION_OUT},
    {",detokenize,", CLI_OPTION_DECODE},
    {",eot,eos,append-eos,append-eod,", CLI_OPTION_END_OF_TEXT},
    {",bos,add-bos,special-tokens,template,", CLI_OPTION_ADD_SPECIAL_TOKENS},
    {",profile,timeline,chrome-trace,", CLI_OPTION_TRACE},
    {",dry-run,", CLI_OPTION_PLAN_ONLY},
    {",silent,", CLI_OPTION_QUIET},
    {",debug,verbosity,", CLI_OPTION_VERBOSE},
    {",usage,", CLI_OPTION_HELP},
};
/* clang-format on */
enum { MEANINGS = sizeof meanings / sizeof meanings[0] };

const char *cli_option_by_meaning(const char *name, unsigned command) {
    char wanted[64];
    int length = snprintf(wanted, sizeof wanted, ",%.*s,", (int)sizeof wanted - 3, name);
    for (int i = 0; i < length; i++)
        wanted[i] = wanted[i] == '_' ? '-' : (char)tolower((unsigned char)wanted[i]);
    /* cgpipe 0.1.0 had --recipe; a run file replaces its only value */
    const bool recipe = strcmp(wanted, ",recipe,") == 0;
    for (int i = 0; i < MEANINGS; i++) {
        const int id = (int)meanings[i].option;
        if (cli_option_taken(id, command) && strstr(meanings[i].names, wanted))
            return recipe ? "config recipes/resnet101-imagenet.yaml" : cli_options[id].name;
    }
    return NULL;
}

const char *cli_option_nearest(const char *name, unsigned command) {
    const char *names[CLI_OPTION_COUNT], *meant = cli_option_by_meaning(name, command);
    int count = 0;
    if (meant) return meant;
    for (int id = 0; id < CLI_OPTION_COUNT; id++) {
        if (cli_option_taken(id, command)) names[count++] = cli_options[id].name;
    }
    return cgp_nearest(name, names, count);
}
