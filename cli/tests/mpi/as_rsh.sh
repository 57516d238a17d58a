#!/bin/sh
# Stands for rsh between the hosts of hosts.rs: executes a command on the host that the first argument names.
# HOMESPUN_TEST_HOSTS has the address of each host and a process there: "10.7.0.1=123 10.7.0.2=456".
# As over rsh, a shell splits the words of the command, which gets no variables of the caller.
host=$1
shift
for pair in $HOMESPUN_TEST_HOSTS; do
    if [ "${pair%=*}" = "$host" ]; then
        exec nsenter --net --uts --target "${pair#*=}" \
            env -i PATH="$PATH" HOME="$HOME" TMPDIR="$TMPDIR" sh -c "$*"
    fi
done
echo "there is no host $host" >&2
exit 1
