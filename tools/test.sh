#!/bin/sh
# Every test, in three groups side by side: most of them wait for a server, a client or a disk.
# With arguments, one run with those arguments.
set -u
python=.venv/bin/python
if [ $# -gt 0 ]; then
    exec "$python" -m pytest "$@"
fi

logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

run() {  # run <name> <folders...>
    name=$1
    shift
    "$python" -m pytest "$@" -p no:cacheprovider >"$logs/$name" 2>&1
    echo $? >"$logs/$name.status"
    echo "--- $name ($*): exit $(cat "$logs/$name.status")"
}

run spark tests/etl tests/gateway tests/examples &
run peers tests/faults tests/interop tests/unit &
run store tests/store tests/protocol tests/model &
wait

failed=0
for name in spark peers store; do
    echo "=== $name"
    cat "$logs/$name"
    [ "$(cat "$logs/$name.status")" = 0 ] || failed=1
done
exit $failed
