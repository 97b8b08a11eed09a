#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# See it work: build, start a training loop, enter it, ask it, kill it, ask it again.
# usage: scripts/tools/demo.sh           PROBING_SETUP=0 installs nothing
# Prints every command with its real answer; leaves nothing running and nothing behind.  Exit code
# 1 when a step failed: it goes on to the next one, so that what works is still seen.
set -u
cd "$(dirname "$0")/../.." || exit 2

if [ "${PROBING_SETUP:-1}" != 0 ]; then
    sh scripts/tools/setup.sh || exit 2
fi
mkdir -p build
if ! /usr/bin/scons -Q -j "$(nproc)" >build/build.log 2>&1; then
    tail -n 40 build/build.log
    echo "demo: the build failed"
    exit 2
fi

# Ubuntu has no torch of its own since 24.04: PyPI's then, where it can be had.
python=${PYTHON:-/usr/bin/python3}
train=tests/train/tiny_transformer.py
if ! "$python" -c 'import torch' 2>/dev/null; then
    newer=$(sh scripts/tools/newer_torch.sh)
    if [ -n "$newer" ]; then
        python=$newer
    else
        echo "demo: no torch is to be had here: a network in numpy is trained instead"
        train=tests/train/tiny_network.py
    fi
fi
scratch=$(mktemp -d)
PATH=$PWD/build/release:$PATH
PROBING_DATA_DIR=$scratch/data
export PATH PROBING_DATA_DIR
mkdir -m 0700 "$PROBING_DATA_DIR"
bad=0

# Show a command as one would type it, run it, and remember if it failed.
show() {
    printf '\n$'
    for word in "$@"; do
        case $word in
            *[!A-Za-z0-9_./:=-]*) printf ' "%s"' "$word" ;;
            *) printf ' %s' "$word" ;;
        esac
    done
    printf '\n'
    "$@" || { echo "(exit $?)"; bad=1; }
}

OMP_NUM_THREADS=1 "$python" -u "$train" >"$scratch/train.log" 2>&1 &
pid=$!
trap 'kill -9 $pid 2>/dev/null; rm -rf "$scratch"' EXIT INT TERM
echo "\$ python3 $train &        # pid $pid: an ordinary training loop that knows nothing of us"
tries=300 # of 0.2 s: importing torch takes most of it
while [ ! -s "$scratch/train.log" ] && [ $tries -gt 0 ] && kill -0 $pid 2>/dev/null; do
    tries=$((tries - 1))
    sleep 0.2
done

show probing -t $pid inject
if [ "$train" = tests/train/tiny_transformer.py ]; then
    library=torch
    last="select max(local_step) as last_step, count(*) as rows from python.torch_trace"
    show probing -t $pid plugin load torch
    sleep 3
    show probing -t $pid query "select module, stage, count(*) as calls, avg(duration) * 1e6 as us
    from python.torch_trace where stage like 'post%'
    group by module, stage order by us desc limit 8"
else
    library=numpy
    last="select max(ts) as last_call, count(*) as rows from python.trace_event"
    show probing -t $pid trace --keep train_step Network.forward Network.backward Network.update
    sleep 3
    show probing -t $pid query "select name, count(*) as calls, avg(duration_ns) / 1e3 as us
    from python.trace_event group by name order by us desc"
fi
show probing -t $pid backtrace
show probing -t $pid eval "import $library; print($library.__version__)"
show probing -t $pid query "select * from probing.plugins"
echo
echo "\$ kill -9 $pid                # and now it is dead"
kill -9 $pid
wait $pid 2>/dev/null
show probing -t $pid query "$last"
exit $bad
