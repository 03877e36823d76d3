# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# commands.sh -- commands of the documentation that test_docs.sh does not run as written.
# test_docs.sh sources this file.
#
#     skip COMMAND WHY          do not run it; WHY is the test that runs it, or the reason
#     add COMMAND WORDS         append these words, so that the command takes less time
#     numbers COMMAND           compare the output without numbers, which are times or depend on
#                               the text
#
# COMMAND is written as in the page, without its comment and with single spaces. An entry is an
# error if its command is in no page. A command that fails and has no entry is an error too.

# --- cgpipe help ---
add 'cgpipe train gpt2:layers=4,width=128,heads=4,seq=128 --data book.txt --stages 2' '--steps 1 --batch 4 --validation 0.005'
add 'cgpipe sample run --prompt "Once" --length 500' '--length 10'

skip 'cgpipe compare run other-run' 'needs two runs with digests; test_compare'
skip 'cgpipe diagnose run' 'has files where a process was lost; test_mpi_faults'

# --- commands that take too long ---
skip 'make demo' 'test_demo trains a sixth of it, .ci/nightly all'
skip 'make test' 'is this'
skip 'mpirun -n 4 python train.py' 'test_mpi_python runs such programs'
skip 'cgpipe profile gpt2:vocab=3000,seq=128 --batch 8 --json costs.json' 'half a minute; costs-files.md has a smaller one'
skip 'cgpipe plan gpt2:layers=12,width=256,heads=4,seq=128,vocab=3000 --batch 16 --stages 4 --search --memory-limit 60M' 'half a minute; the guide has a smaller one'
skip 'make bench' 'an hour'
skip 'make bench ROUNDS=9' 'an hour'
skip 'make tables' 'hours'
skip 'bench/gpt2.py' 'minutes; needs PyTorch'
skip 'TINY=1 RESULTS=try bench/gpt2.py 1' 'needs PyTorch, and builds'
skip 'TORCHGPIPE_SRC=torchgpipe PYTHON=venv/bin/python tools/torchgpipe_tests.sh' 'needs PyTorch and the source of torchgpipe'
skip 'PLAN_ONLY=1 make tables' 'minutes; test_tables plans some'
for table in amoebanetd-memory amoebanetd-speed resnet101-speed unet-memory unet-speed; do
    skip "PLAN_ONLY=1 bench/tables.py $table" 'test_tables plans some'
    skip "bench/tables.py $table" 'minutes to hours'
done
for table in amoebanetd-speed resnet101-speed unet-speed; do
    skip "PROFILE=1 bench/tables.py $table" 'minutes; test_costs has cgpipe profile'
done
skip 'tests/mutation/run.py BUILD' 'builds the library 15 times'
skip 'tests/mutation/run.py BUILD variance-is-biased' 'likewise'

# --- commands that build, or change the system ---
skip 'make' 'this build is there'
skip 'make install PREFIX=$HOME/cgpipe' 'done before the pages are read, without building anew'
skip 'sudo make install' 'test_install, in directories of its own'
skip 'sudo make uninstall' 'test_install'
skip 'cgpipe completion fish | source' 'needs fish; test_completion'
skip 'cc program.c $(pkg-config --cflags --libs cgpipe)' 'test_install, with the examples'
skip 'cc program.c -static $(pkg-config --static --cflags --libs cgpipe)' 'test_install'

skip 'tools/python.sh' 'makes a virtual environment of packages from an index, and builds; its tests are python_*'
skip 'TORCH=2.9.0 tools/python.sh' 'likewise, with PyTorch'
skip 'PYTHONPATH=python python3 python/tests/test_capture_proof.py --table' 'needs PyTorch; python_capture_proof'
skip 'pip wheel --no-build-isolation --no-deps ./python' 'tools/python.sh does it'

# --- CONTRIBUTING.md ---
skip 'make deps' 'installs packages'
skip 'make asan' '.ci/run, .ci/nightly'
skip 'make fuzz SECONDS=60 READERS="run safetensors"' 'needs clang; .ci/nightly fuzz'
skip 'cmake --preset dev && cmake --build --preset dev' 'builds'
skip 'ctest --test-dir build -R test_op_gradients --output-on-failure' 'is a test of this build'
skip "ctest --test-dir build -R 'test_op_|test_arguments|test_docs|test_bit_equality|test_gradients' --output-on-failure" 'tests of this build'
skip 'CGP_TEST_SEED=1234 build/tests/test_schedules' 'a test of this build'
skip 'tests/mutation/run.py build' 'builds the library 15 times'
skip '.ci/run' 'runs this'
skip '.ci/nightly' 'hours'
skip '.ci/nightly load' 'an hour'

# --- README.md ---
gpt2=gpt2:layers=4,width=128,heads=4,vocab=256,seq=128
add "build/cgpipe train $gpt2 --data README.md --stages 2 --steps 20 --run my-run" '--steps 2'
add 'build/cgpipe sample my-run --prompt "A schedule is" --length 100' '--length 5'

# --- bench/README.md ---
skip 'bench/measured_steps.py' 'plans tables of layers, as test_layer_tables does'
skip 'bench/largest.py' 'plans models of 10^9 parameters, as test_plan_search does small ones'
skip 'bench/largest.py 1 --run' 'takes 2 GiB and minutes'
skip 'bench/megatron_layouts.py' 'plans models of 10^12 parameters, as test_cluster does small ones'
skip 'bench/planners.py --dp dp graphs/*_training.json' 'needs the graphs and the program of others'
add 'cgpipe bench gpt2 --stages 2 --chunks 8 --batch 8' '--steps 2 --model gpt2:layers=2,width=64,heads=4,vocab=256,seq=64'

# --- docs/how-to/train-text.md ---
add "cgpipe train $gpt2 --data src include --stages 2 --batch 16 --chunks 4 --steps 300 --warmup 20 --lr-schedule cosine --clip 1 \
--evaluate-every 100 --save-every 50 --run my-run" '--steps 2 --warmup 1 --validation 0.001'
add "cgpipe train gpt2:layers=4,width=128,heads=4,vocab=2257,seq=128 --data pages.bin --steps 100 --run pages-run" '--steps 2'
add 'cgpipe sample pages-run --tokenizer tests/data/tokenizer --prompt "A pipeline" --length 50' '--length 5'
add "cgpipe train $gpt2 --data src include --stages 2 --batch 8 --chunks 4 --steps 10 --run short --trace step.json,step.svg,step.txt" \
    '--steps 3 --validation 0.001'

add 'cgpipe train gpt2:layers=4,width=128,heads=4,seq=128 --data README.md --tokenizer tests/data/tokenizer --steps 100 --run one' '--steps 2'
add 'cgpipe sample one --prompt "A pipeline" --length 50' '--length 5'

# --- docs/how-to/fine-tune.md ---
skip 'cgpipe train HF-DIR --data book.txt --run tuned' 'a form; the example below it is run'
skip 'cgpipe convert tuned OUT' 'likewise'
add 'cgpipe train llama:layers=2,width=64,heads=4,inner=128,seq=64 --data README.md --tokenizer tests/data/tokenizer --steps 100 --batch 16 --run made' '--steps 2'
add 'cgpipe train small-llama --data ARCHITECTURE.md --steps 50 --batch 16 --stages 2 --run tuned' '--steps 2'

# --- docs/how-to/see-a-run.md ---
for command in 'cgpipe report RUN' 'cgpipe report RUN --text' 'cgpipe report RUN --json report.json' 'cgpipe report RUN RUN2 --out both.html' 'cgpipe report RUN --csv'; do
    skip "$command" 'a form; test_report, test_metrics_file'
done
skip 'tensorboard --logdir seen/events' 'needs tensorboard, and serves until it is stopped; test_tensorboard reads such files'

# --- docs/how-to/train-images.md ---
add 'cgpipe train resnet20 --data shapes --stages 2 --batch 32 --chunks 2 --balance time --lr 3e-3 --warmup 50 --lr-schedule cosine --steps 600 --evaluate-every 300' \
    '--steps 2 --warmup 1 --run r --balance flops'
add 'cgpipe train unet:B=2,C=8,depth=3,image=32 --data shapes:masks=1,validation=500 --stages 2 --batch 16 --chunks 2 --dropout 0 --lr 1e-2 --warmup 50 --lr-schedule cosine --steps 2500 --evaluate-every 500' \
    '--steps 2 --warmup 1 --run u'
add 'cgpipe train amoebanetd:L=3,D=32,classes=10,image=64 --data shapes:size=64 --stages 2 --batch 32 --chunks 4 --steps 600' \
    '--steps 2 --run a'
add 'cgpipe train vit:layers=4,width=64,heads=4,image=32,patch=4,classes=10 --data shapes --stages 2 --batch 32 --chunks 2 --balance time --lr 2e-3 --warmup 100 --lr-schedule cosine --clip 1 --steps 1500 --evaluate-every 500' \
    '--steps 2 --warmup 1 --run v --balance flops'
skip 'cgpipe train MODEL --data shapes ...' 'a form; the four below are run'

# --- docs/how-to/run-files.md, docs/reference/run-files.md ---
add 'cgpipe train --config small.yaml --data book.txt --run small' '--steps 3'
add 'cgpipe train --config small.yaml --data book.txt --run smaller --lr 1e-3' '--steps 3'
add 'cgpipe train --config recipes/resnet20-cifar10.yaml --data shapes --batch 32 --steps 100 --run shapes' '--steps 2'
skip 'cgpipe train --config FILE [options]' 'a form'
skip 'cgpipe train MODEL --data PATH --digest-every N' 'a form; test_compare'
skip 'cgpipe compare RUN RUN' 'a form; test_compare'
skip 'cgpipe train --config recipes/resnet101-imagenet.yaml --data images:imagenet --epochs 45 --warmup 2ep --lr-milestones 15ep,30ep,40ep' \
    'ImageNet is not here; test_recipe trains in small'

# --- docs/how-to/prove-steps.md ---
add 'cgpipe train gpt2:layers=4,width=128,heads=4,vocab=256,seq=128 --data book.txt --steps 200 --stages 2 --replay-every 20 --run proven' \
    '--steps 2 --replay-every 1'
add 'cgpipe train --resume --run proven' '--steps 3'
skip 'cgpipe train MODEL --data PATH --stages 3 --replay-every 10 --replay-on 1,1,0' 'a form; test_replay'

# --- docs/how-to/write-a-backend.md ---
skip 'cmake -S examples/own_backend -B own -DCMAKE_PREFIX_PATH=PREFIX && cmake --build own' 'test_own_backend'
skip 'CGP_PLUGIN_PATH=$PWD/own cgpipe devices' 'test_own_backend, test_devices_command'
skip 'cc -shared -fPIC -Wl,-z,defs toy.c $(pkg-config --cflags cgpipe) -lm -o libcgpipe-toy.so' 'test_own_backend'

# --- docs/guide.md, docs/how-to/own-model.md, docs/reference/graph-files.md ---
for command in 'make -C mine test' 'cgpipe train mine/mine.so --data plugin --stages 2 --batch 64 --steps 500 --run mine-run' \
    'cgpipe plan mine/mine.so --stages 2' 'cgpipe profile mine/mine.so --batch 64 --json costs.json' \
    'cgpipe check mine/mine.so --stages 3 --schedule zb-h1 --batch 8' \
    'cgpipe train mine/mine.so --data plugin --stages 2 --batch 64 --steps 500 --run mine-run --save-every 100' \
    'cgpipe train --resume --run mine-run --stages 3 --steps 1000 --model mine/mine.so' \
    'cgpipe plan mine/mine.so:width=128,blocks=6 --stages 2 --batch 64' 'cgpipe profile mine/mine.so:width=128,blocks=6 --batch 64' \
    'cgpipe train mine/mine.so:width=128,blocks=6 --data plugin --stages 2 --batch 64 --steps 500 --run mine-run --save-every 50' \
    'cgpipe train --resume --run mine-run --steps 1000 --model mine/mine.so' \
    'cc -shared -fPIC -o mine.so mine.c $(pkg-config --cflags --libs cgpipe_data cgpipe) -lm'; do
    skip "$command" 'builds; test_new_model'
done
skip 'cgpipe plan ./mine.json --plugin ./mine.so' 'builds; test_graph'

# --- examples/README.md ---
skip 'cc hello_pipeline.c $(pkg-config --cflags --libs cgpipe) -lm -o hello_pipeline' 'test_install'

# --- docs/guide.md ---
small=gpt2:layers=2,width=64,heads=4,vocab=256,seq=64
numbers "cgpipe train $small --data book.txt --stages 2 --batch 16 --chunks 4 --steps 40 --run first"
numbers "cgpipe check $small --stages 2 --batch 16 --chunks 4 --schedule zb-v --recompute always"
numbers "cgpipe schedule --compare step.json --svg compared.svg"
numbers "./guide whole 2 600"

# --- cgpipe convert ---
skip 'cgpipe convert gpt2-files run' 'the example of train has made this directory; docs/reference/models.md converts to another'
skip 'cgpipe sample my-gpt2 --tokenizer gpt2-files --prompt "Once"' 'the weights of tests/data know 53 tokens, the tokenizer there has 2,257; test_convert samples from bytes'
skip 'cgpipe convert resnet50.safetensors my-resnet --model resnet50' 'no weights of a ResNet-50 are here; test_convert has a ResNet-20'
skip 'cgpipe convert my-resnet out.safetensors' 'likewise'

# --- docs/how-to/run-in-several-processes.md ---
skip "mpirun -n 2 cgpipe train $gpt2 --data book.txt --stages 4 --steps 20 --run ranks" 'test_mpi_train; needs MPI'
skip 'cgpipe train --resume --run ranks --steps 30 --stages 2' 'test_mpi_train'
skip 'mpirun -n 3 cgpipe train --resume --run ranks --steps 40 --stages 3' 'test_mpi_train; needs MPI'
skip 'mpirun -n 2 cgpipe sample ranks --prompt "Once" --length 100' 'test_mpi_commands; needs MPI'
skip "mpirun -n 2 cgpipe check $gpt2 --stages 4 --schedule zb-v --batch 8" 'test_mpi_commands; needs MPI'
skip "mpirun -n 2 cgpipe profile $gpt2 --batch 8" 'test_mpi_commands; needs MPI'
skip "mpirun -n 2 cgpipe bench $gpt2 --stages 2 --balance time" 'test_mpi_commands; needs MPI'
skip "cgpipe train $gpt2 --data book.txt --replicas 2 --steps 20 --run replicas" 'test_train_replicas'
skip 'mpirun -n 2 cgpipe train --resume --run replicas --steps 30' 'test_mpi_replicas; needs MPI'
skip 'cgpipe train --resume --run replicas --steps 40 --replicas 1' 'test_mpi_replicas'

# --- docs/how-to/survive-failures.md, cgpipe supervise, cgpipe stop ---
skip 'cgpipe stop my-run' 'nothing trains here; test_stop'
skip 'cgpipe stop run' 'likewise'
add "cgpipe supervise -- cgpipe train $gpt2 --data book.txt --steps 200 --run my-run --resume" '--steps 2'
skip 'cgpipe supervise --ranks 4,2,1 -- mpirun -n {ranks} cgpipe train --resume --run my-run --steps 300 --stages 4' 'test_mpi_supervise; needs MPI'
skip 'cgpipe supervise --ranks 4,2,1 -- mpirun -n {ranks} cgpipe train --resume --run run' 'likewise'

# --- docs/how-to/run-on-a-cluster.md, docs/reference/cluster-files.md ---
skip "mpirun -n 2 --hostfile hosts.txt cgpipe train $gpt2 --data book.txt --stages 4 --run on-hosts" 'test_mpi_hosts; needs hosts'
skip 'mpirun -n 2 --hostfile hosts.txt apptainer exec cgpipe.sif cgpipe train --resume --run on-hosts' 'needs Apptainer, hosts and an image'
skip 'docker run --rm --ipc=host --cap-add=SYS_PTRACE -v $PWD:/work -w /work IMAGE mpirun -n 2 cgpipe train --resume --run on-hosts' 'needs Docker and an image'
skip 'mpirun -n 2 --hostfile hosts.txt cgpipe bench transport --json cluster.json' 'test_mpi_hosts; needs hosts'
skip "cgpipe plan $gpt2 --stages 2 --chunks 8 --schedule zb-h1 --costs costs.json --cluster cluster.json" 'test_cluster; the file comes from hosts'
skip 'mpirun -n 4 cgpipe bench transport --json cluster.json' 'test_mpi_hosts; needs MPI'
skip 'cgpipe plan MODEL --stages 4 --costs costs.json --cluster cluster.json' 'a form; test_cluster runs it'

skip 'cgpipe plan MODEL --stages 4 --cluster cluster.json' 'likewise'

# --- docs/reference/layer-tables.md ---
skip 'cgpipe plan layers.csv --stages 4 --chunks 16' 'the file is an example; test_layer_tables plans some'
skip 'cgpipe plan layers.csv --stages 4 --chunks 16 --memory-limit 16GiB --search' 'likewise'
skip 'cgpipe plan MODEL --stages 4 --costs layers.csv' 'a form; test_layer_tables runs it'
skip 'cgpipe convert graph.txt layers.csv' 'a file of PipeDream; test_layer_tables converts one'
skip 'cgpipe convert bert32a100.json layers.csv' 'a file of Piper; test_layer_tables converts one'

# --- docs/reference/costs-files.md ---
skip 'cgpipe train MODEL --data FILE --stages 2 --costs-out costs.json' 'a form; test_costs runs it'
skip 'cgpipe profile MODEL --batch 16 --json costs.json' 'a form; test_costs runs it'
skip 'cgpipe profile MODEL --batch 16 --devices 2 --json costs.json' 'a form; test_costs runs it'
skip 'cgpipe bench MODEL --stages 2 --costs-out costs.json' 'a form; test_costs runs it'
skip 'cgpipe plan MODEL --stages 2 --batch 32 --chunks 8 --costs costs.json --balance time' 'a form; test_costs runs it'

# --- docs/design/cuda.md ---
for devices in auto cuda:0,cuda:1 cuda:0@22GiB,cuda:0@22GiB cuda:0,cpu; do
    skip "cgpipe train gpt2 --data text.txt --devices $devices" 'needs a GPU; test_cuda_train runs its like on cuda-host'
done
skip 'cgpipe bench gpt2:layers=12,width=768,heads=12,vocab=3000,seq=128 --batch 1 --chunks 1 --steps 2 --schedule gpipe --dropout 0' 'is run under gdb'

# --- docs/how-to/check-a-gpu.md ---
skip 'tools/gpu_check.sh' 'needs a GPU; test_cuda_gpu_check runs it on cuda-host'
skip 'tools/gpu_check.sh --part digests' 'likewise'
skip 'tools/gpu_check.sh --pack build-pack' 'builds for a GPU; test_cuda_gpu_check packs a build'
skip 'tools/gpu_check.sh --built build-pack --out results' 'needs a GPU; test_cuda_gpu_check runs a pack on cuda-host'
skip 'tools/gpu_check.sh --backend cuda-host' 'builds; test_cuda_gpu_check, .ci/nightly gpu'
skip 'tools/gpu_check/digests.py build >tests/cuda/digests.txt' 'writes a file of the project; test_cuda_gpu_check compares it'
skip 'ctest --test-dir build -R test_cuda_nvcc -V' 'is a test of this build'

# --- docs/how-to/install.md ---
skip 'cmake -S . -B build-mpich -G Ninja -DMPI_C_COMPILER=/usr/bin/mpicc.mpich -DMPIEXEC_EXECUTABLE=/usr/bin/mpiexec.mpich' 'builds; needs MPICH'
skip 'cmake --build build-mpich' 'builds; needs MPICH'
skip 'mpiexec.mpich -n 2 build-mpich/cgpipe bench transport' 'needs MPICH'
skip 'bench/hosts.sh' 'a quarter of an hour; needs the right to make network namespaces'
