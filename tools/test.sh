#!/bin/sh
# Every test, in three groups side by side: most of them wait for a server, a client or a disk.
# With arguments, one run with those arguments.
set -u
python=.venv/bin/python
if [ $# -gt 0 ]; then
    exec "$python" -m pytest "$@"
fi

logs=$(mktemp -d)
memory=""
trap 'rm -rf "$logs" ${memory:+"$memory"}' EXIT

# The tests make and drop some two thousand databases. In memory, where there is room for them, that
# takes minutes less than on a disk, and nothing here outlives the machine. TMPDIR chooses a place.
room=$(df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 {print $4}')
if [ -z "${TMPDIR:-}" ] && [ -w /dev/shm ] && [ "${room:-0}" -gt 8388608 ]; then
    memory=$(mktemp -d /dev/shm/howdah.XXXXXX)
    chmod 755 "$memory"
    export TMPDIR="$memory"
fi

run() {  # run <name> <folders...>
    name=$1
    shift
    "$python" -m pytest "$@" -p no:cacheprovider >"$logs/$name" 2>&1
    echo $? >"$logs/$name.status"
    echo "--- $name ($*): exit $(cat "$logs/$name.status")"
}

run spark tests/etl tests/gateway tests/examples &
run peers tests/faults tests/interop &
run store tests/store tests/protocol tests/model tests/unit &
wait

failed=0
for name in spark peers store; do
    echo "=== $name"
    cat "$logs/$name"
    [ "$(cat "$logs/$name.status")" = 0 ] || failed=1
done
exit $failed
