#!/usr/bin/env bash
# Programs that people use, on a mount: rsync, git, tar and rm, SQLite, PostgreSQL, a C compiler and make; each must
# end without an error and leave what it leaves on a local disk.
# VAZAO_LINUX_SOURCE=1 also unpacks the Linux sources (Debian's linux-source, some GB) and compares every file.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/packages.sh
source scripts/lib/volume.sh
sandbox_enter

if [[ $EUID -ne 0 ]]; then
    echo "the applications must run as root: PostgreSQL refuses root and gets a user of its own" >&2
    exit 1
fi

mountpoint="$TMPDIR/applications"
outside="$TMPDIR/outside"
passed=0
failed=0

# check NAME COMMAND...: runs a test in a shell of its own, counts it and shows its output when it fails.
check() {
    local name="$1" started=$SECONDS
    shift
    if (set -euo pipefail && "$@") >"$TMPDIR/$name.log" 2>&1; then
        passed=$((passed + 1))
        echo "$name: $((SECONDS - started)) s"
    else
        cat "$TMPDIR/$name.log"
        echo "failed: $name"
        failed=$((failed + 1))
    fi
}

# install_packages: what setup does not bring. PostgreSQL shall not begin a cluster of its own when it is installed.
install_packages() {
    compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null && return 0
    local quiet=/etc/postgresql-common/createcluster.d/vazao-test.conf
    mkdir -p "$(dirname "$quiet")"
    echo "create_main_cluster = false" >"$quiet"
    packages_install postgresql
    rm -f "$quiet"
}

# a_tree DIRECTORY: files of all kinds, with everything that rsync -aHAX knows.
a_tree() {
    mkdir -p "$1/deep/er"
    cp -r /usr/include/linux "$1/headers"
    dd if=/dev/urandom of="$1/large" bs=1M count=8 status=none
    truncate -s 64M "$1/sparse"
    printf 'in the middle' | dd of="$1/sparse" bs=1M seek=20 conv=notrunc status=none
    ln "$1/large" "$1/deep/hard"
    ln -s ../large "$1/deep/soft"
    mkfifo "$1/deep/pipe"
    setfattr -n user.note -v 'kept' "$1/large"
    setfacl -m u:nobody:r "$1/large"
    setfacl -d -m g:daemon:rx "$1/deep"
    chown daemon:daemon "$1/deep/er"
    chmod 2750 "$1/deep/er"
    find "$1" -exec touch -h -d '2020-01-02 03:04:05.678901234' {} +
}

with_rsync() {
    a_tree "$outside/tree"
    rsync -aHAXS "$outside/tree/" "$mountpoint/tree/"
    rsync -aHAXS "$mountpoint/tree/" "$outside/back/"
    [[ -z "$(rsync -aHAXnic --delete "$outside/tree/" "$outside/back/")" ]]
    [[ "$(du -k "$mountpoint/tree/sparse" | cut -f1)" -lt 1024 ]]
    [[ "$(stat -c %h "$mountpoint/tree/large")" -eq 2 ]]
}

with_git() {
    local git=(git -c user.name=tester -c user.email=tester@example.org -c gc.auto=0)
    "${git[@]}" init --quiet "$outside/repository"
    cp -r /usr/include/linux "$outside/repository/headers"
    "${git[@]}" -C "$outside/repository" add .
    "${git[@]}" -C "$outside/repository" commit --quiet -m first
    "${git[@]}" clone --quiet --no-local "$outside/repository" "$mountpoint/clone"
    "${git[@]}" -C "$mountpoint/clone" fsck --full --strict
    echo change >>"$mountpoint/clone/headers/fs.h"
    "${git[@]}" -C "$mountpoint/clone" commit --quiet -am second
    "${git[@]}" -C "$mountpoint/clone" gc --quiet
    "${git[@]}" -C "$mountpoint/clone" fsck --full --strict
    [[ -z "$("${git[@]}" -C "$mountpoint/clone" status --porcelain)" ]]
    "${git[@]}" clone --quiet "$mountpoint/clone" "$outside/second"
    [[ "$("${git[@]}" -C "$outside/second" log --oneline | wc -l)" -eq 2 ]]
}

with_tar_and_rm() {
    local count=4000
    mkdir -p "$outside/many"
    (cd "$outside/many" && seq "$count" | split -l 1 -a 4 - file- && mkdir d && mv file-aa* d/)
    tar -C "$outside" -cf "$outside/many.tar" many
    tar -C "$mountpoint" -xf "$outside/many.tar"
    diff -r "$outside/many" "$mountpoint/many"
    # Somebody adds and removes names while everything is removed: rm must meet each of the old ones all the same.
    (for number in $(seq 200); do
        echo x >"$mountpoint/other-$number"
        mv "$mountpoint/other-$number" "$mountpoint/moved"
    done) &
    local other=$!
    rm -r "$mountpoint/many"
    wait "$other"
    [[ ! -e "$mountpoint/many" && "$(cat "$mountpoint/moved")" == x ]]
}

with_sqlite() {
    local journal database writer
    for journal in delete wal; do
        database="$mountpoint/$journal.db"
        sqlite3 "$database" "pragma journal_mode=$journal; create table t(a integer primary key, b text);"
        local -a writers=()
        for writer in 1 2 3; do
            for _ in $(seq 20); do
                echo "insert into t(b) select 'writer $writer' from generate_series(1, 50);"
            done | sqlite3 -cmd '.timeout 60000' "$database" &
            writers+=($!)
        done
        for writer in "${writers[@]}"; do
            wait "$writer"
        done
        [[ "$(sqlite3 "$database" 'select count(*), count(distinct b) from t')" == '3000|3' ]]
        [[ "$(sqlite3 "$database" 'pragma integrity_check')" == ok ]]
    done
}

# postgres_does COMMAND...: as PostgreSQL's own user, from a directory that it may enter.
postgres_does() {
    (cd / && runuser -u postgres -- env PGHOST="$outside/socket" PATH="$postgres:$PATH" "$@")
}

# The sums that pgbench keeps equal in all its tables.
bench_is_consistent() {
    local sums
    sums="$(postgres_does psql -At -d postgres -c "select (select sum(abalance) from pgbench_accounts) =
        (select sum(bbalance) from pgbench_branches) and (select sum(tbalance) from pgbench_tellers) =
        (select coalesce(sum(delta), 0) from pgbench_history)")"
    [[ "$sums" == t ]]
}

with_postgresql() {
    postgres="$(dirname "$(compgen -G '/usr/lib/postgresql/*/bin/initdb' | tail -1)")"
    install -d -o postgres "$mountpoint/postgres" "$outside/socket"
    postgres_does initdb --pgdata "$mountpoint/postgres/data" --auth trust
    local options="-c fsync=on -c listen_addresses='' -c unix_socket_directories=$outside/socket"
    postgres_does pg_ctl start --wait --pgdata "$mountpoint/postgres/data" -l "$outside/socket/log" -o "$options"
    postgres_does pgbench --initialize --scale 2 --quiet postgres
    postgres_does pgbench --client 4 --time 5 postgres
    bench_is_consistent
    # Without a chance to tidy up: the log that it wrote before must be enough.
    postgres_does pg_ctl stop --mode immediate --pgdata "$mountpoint/postgres/data"
    postgres_does pg_ctl start --wait --pgdata "$mountpoint/postgres/data" -l "$outside/socket/log" -o "$options"
    bench_is_consistent
    postgres_does pg_ctl stop --wait --mode fast --pgdata "$mountpoint/postgres/data"
}

# Twenty sources and a program of them; make must see what is new and what is not.
with_make() {
    local project="$mountpoint/project" number
    mkdir "$project"
    for number in $(seq 20); do
        echo "int f$number(void) { return $number; }" >"$project/f$number.c"
    done
    {
        for number in $(seq 20); do echo "int f$number(void);"; done
        echo '#include <stdio.h>'
        echo "int main(void) { printf(\"%d\\n\", $(printf 'f%d() + ' $(seq 20)) 0); return 0; }"
    } >"$project/main.c"
    printf 'sum: %s\n\tcc -o $@ $^\n' "main.o $(printf 'f%d.o ' $(seq 20))" >"$project/Makefile"
    make -C "$project" --jobs 4
    [[ "$("$project/sum")" -eq 210 ]]
    make -C "$project" --question
    echo 'int f7(void) { return 1007; }' >"$project/f7.c"
    [[ "$(make -C "$project" | grep -c -- ' -c ')" -eq 1 ]]
    [[ "$("$project/sum")" -eq 1210 ]]
}

with_linux_source() {
    packages_install linux-source xz-utils
    local archive
    archive="$(compgen -G '/usr/src/linux-source-*.tar.xz' | tail -1)"
    tar -C "$outside" -xf "$archive"
    tar -C "$mountpoint" -xf "$archive"
    diff -r --no-dereference "$outside"/linux-source-* "$mountpoint"/linux-source-*
    rm -r "$mountpoint"/linux-source-*
}

install_packages
mkdir "$outside"
chmod 711 "$outside"
volume_start "$mountpoint" allow_other,suid,dev
chmod 755 "$mountpoint"
check rsync with_rsync
check git with_git
check tar with_tar_and_rm
check sqlite with_sqlite
check postgresql with_postgresql
check make with_make
if [[ "${VAZAO_LINUX_SOURCE:-}" == 1 ]]; then
    check linux-source with_linux_source
fi
volume_stop "$mountpoint"
echo "$passed passed, $failed failed"
[[ "$failed" -eq 0 ]]
