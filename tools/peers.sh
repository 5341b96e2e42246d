#!/bin/sh
# Other people's brokers and clients that tests compare with: Debian's packages. Installed by root
# where apt-get is; elsewhere the tests that need one skip, and say so.
set -eu

wanted=""
need() {  # program, package
    command -v "$1" >/dev/null 2>&1 || [ -x "/usr/sbin/$1" ] || wanted="$wanted $2"
}
need mosquitto mosquitto
need mosquitto_pub mosquitto-clients
need rabbitmq-server rabbitmq-server
need amqp-publish amqp-tools
need npm npm
need cc gcc
need pgbouncer pgbouncer
ls /usr/lib/postgresql/*/lib/llvmjit.so >/dev/null 2>&1 || wanted="$wanted postgresql"
ls /usr/lib/*/faketime/libfaketime.so.1 >/dev/null 2>&1 || wanted="$wanted libfaketime"
[ -e /usr/include/proton/connection_driver.h ] || wanted="$wanted libqpid-proton11-dev"
[ -e /usr/include/MQTTAsync.h ] || wanted="$wanted libpaho-mqtt-dev"
[ -n "$wanted" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
    echo "howdah: tests that compare with other brokers skip: 'apt-get install -y$wanted' installs them"
    exit 0
fi

# The packages start their services; the tests start their own, on free ports.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
    trap 'rm -f "$policy"' EXIT
    printf '#!/bin/sh\nexit 101\n' > "$policy"
    chmod 755 "$policy"
fi
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update -qq && apt-get install -y -qq --no-install-recommends $wanted; } >/dev/null 2>&1; then
    echo "howdah: could not install$wanted; tests that compare with them skip"
fi
