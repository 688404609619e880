#!/usr/bin/env bash
# `vazao cp` from and to a real FTP server (PureFTPd of Debian, installed where it is missing), started here on a port
# of its own for a user of its own.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/product.sh
source scripts/lib/packages.sh
sandbox_enter

passed=0
failed=0

# check TEXT COMMAND...: counts whether the command works.
check() {
    local text="$1"
    shift
    if "$@"; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $text" >&2
    fi
}

finish() {
    printf '%d passed, %d failed\n' "$passed" "$failed"
    [[ $failed -eq 0 ]]
    exit
}

# What cannot be tested is said aloud and fails: a green run means that it was tested.
cannot() {
    echo "NOT TESTED: $1" >&2
    failed=$((failed + 1))
    finish
}

[[ $EUID -eq 0 ]] || cannot "a PureFTPd for this test needs root to log its user in"
if ! command -v pure-ftpd >/dev/null; then
    packages_install pure-ftpd >"$TMPDIR/apt.log" 2>&1 ||
        cannot "PureFTPd cannot be installed: $(tail -n 1 "$TMPDIR/apt.log")"
fi

product_build vazao-app
vazao="$programs/vazao"

# A user of the server only, in a file of its own; the password is no secret.
home="$TMPDIR/home"
mkdir "$home"
user=ftpguest
password='pa ss%word'
chown nobody "$home"
# Hashed here: `pure-pw` would have the server use two seconds of a processor for each login.
hash="$(perl -e 'print crypt($ARGV[0], q($6$vazao$))' "$password")"
echo "$user:$hash:$(id -u nobody):$(id -g nobody)::$home/./::::::::::::" >"$TMPDIR/passwd"
pure-pw mkdb "$TMPDIR/users.pdb" -f "$TMPDIR/passwd"

port=""
for try in $(seq 2100 7 2300); do
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$try") 2>/dev/null; then
        port=$try
        break
    fi
done
[[ -n "$port" ]] || cannot "no free port for PureFTPd"
pure-ftpd -S "127.0.0.1,$port" -l "puredb:$TMPDIR/users.pdb" -E -u 1 -H -c 20 -C 20 \
    -g "$TMPDIR/pure-ftpd.pid" >"$TMPDIR/server.log" 2>&1 &
server=$!
for _ in $(seq 50); do
    (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && break
    kill -0 "$server" 2>/dev/null || cannot "PureFTPd does not start: $(cat "$TMPDIR/server.log")"
    sleep 0.1
done

at="ftp://$user@127.0.0.1:$port"
export VAZAO_FTP_PASSWORD="$password" HOME="$TMPDIR"
cd "$TMPDIR"
mkdir -p tree/deep/er
head -c 30000000 /dev/urandom >tree/big
head -c 70000 /dev/urandom >"tree/deep/two words %41"
: >tree/deep/er/empty
echo small >tree/deep/er/small

check "a tree goes out" "$vazao" cp -r tree "$at/"
check "as it is" diff -r tree "$home/tree"
check "and comes back" "$vazao" cp -r "$at/tree" back
check "as it is" diff -r tree back
check "one file, by an escaped name" "$vazao" cp "$at/tree/deep/two%20words%20%2541" one
check "as it is" cmp "tree/deep/two words %41" one
check "over what is there" "$vazao" cp tree/deep/er/small "$at/tree/big"
check "which is replaced" cmp tree/deep/er/small "$home/tree/big"
check "times with -p" "$vazao" cp -p tree/big "$at/timed"
check "to the second" [ "$(stat -c %Y tree/big)" = "$(stat -c %Y "$home/timed")" ]
check "from server to server" "$vazao" cp -r "$at/tree/deep" "$at/deeper"
check "as it is" diff -r tree/deep "$home/deeper"
check "no parts stay" [ -z "$(find "$home" back -name '.*.part')" ]

refused() {
    local said status=0
    said="$("$@" 2>&1)" || status=$?
    [[ $status -eq 1 ]] && grep -q "$at" <<<"$said" && ! grep -q "$password" <<<"$said"
}
check "what is not there" refused "$vazao" cp "$at/none" x
check "a directory without -r" refused "$vazao" cp "$at/tree" x
check "a wrong password" refused env VAZAO_FTP_PASSWORD=wrong "$vazao" cp "$at/tree/big" x
check "none at all" refused env -u VAZAO_FTP_PASSWORD "$vazao" cp "$at/tree/big" x

# A password in the address is not to be seen in the list of processes, nor in what trace logs say.
mkfifo fifo
secret="ftp://$user:pa%20ss%25word@127.0.0.1:$port"
env -u VAZAO_FTP_PASSWORD "$vazao" --log trace cp "$secret/timed" fifo 2>trace.log &
copier=$!
exec 4<fifo
head -c 1000 <&4 >/dev/null
check "no password in the list of processes" \
    bash -c "! tr '\\0' ' ' </proc/$copier/cmdline | grep -q 'ss%25'"
cat <&4 >/dev/null
exec 4<&-
check "a password in the address" wait "$copier"
check "no password in the log" bash -c "! grep -q -e 'pa ss' -e 'ss%25' trace.log"

printf 'machine 127.0.0.1 login %s password "%s"\n' "$user" "$password" >.netrc
chmod 600 .netrc
check "a password of .netrc" env -u VAZAO_FTP_PASSWORD "$vazao" cp "$at/timed" y
chmod 644 .netrc
check "not from one that others can read" refused env -u VAZAO_FTP_PASSWORD "$vazao" cp "$at/timed" y
rm .netrc

# Killed in the middle, in both directions, and gone on with.
head -c 200000000 /dev/urandom >large
# part_of DIRECTORY: the bytes of what has arrived there.
part_of() {
    find "$1" -maxdepth 1 -name '.large*.part' -printf '%s\n' | head -n 1
}
# killed DIRECTORY COMMAND...: kills the command once 20 MB have arrived.
killed() {
    local directory="$1" size=0 copier
    shift
    "$@" &
    copier=$!
    while kill -0 "$copier" 2>/dev/null; do
        size="$(part_of "$directory")"
        [[ ${size:-0} -lt 20000000 ]] || break
    done
    kill -STOP "$copier" 2>/dev/null || return 1
    kill -KILL "$copier"
    wait "$copier" 2>/dev/null || true
    [[ "$(part_of "$directory")" -ge 20000000 ]]
}
# resumed COMMAND...: a copy with --json that moved less than all.
resumed() {
    local bytes
    bytes="$("$@" --resume --json | sed -n 's/.*"bytes":\([0-9]*\).*/\1/p')"
    echo "resumed: $bytes bytes moved"
    [[ "$bytes" -lt 185000000 ]]
}
check "an upload is killed" killed "$home" "$vazao" cp large "$at/"
check "and gone on with" resumed "$vazao" cp large "$at/"
check "as it is" cmp large "$home/large"
mkdir down
check "a download is killed" killed down "$vazao" cp "$at/large" down/
check "and gone on with" resumed "$vazao" cp "$at/large" down/
check "as it is" cmp large down/large
check "what is whole is left alone" [ \
    "$("$vazao" cp "$at/large" down/ --resume --json | sed -n 's/.*"bytes":\([0-9]*\).*/\1/p')" = 0 ]

kill "$server" 2>/dev/null || true
wait "$server" 2>/dev/null || true
finish
