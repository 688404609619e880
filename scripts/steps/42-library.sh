#!/usr/bin/env bash
# The libraries for C and Lua: what the one exports, its examples against a cluster, and programs that test each
# function and all that is wrong to give it, those in C built with the sanitizers for addresses, undefined behaviour
# and threads.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/product.sh
source scripts/lib/library.sh
source scripts/lib/counted.sh
sandbox_enter

# check WHAT COMMAND...: counts whether a command succeeds, and shows what it said where it does not.
check() {
    local what="$1" log="$TMPDIR/log"
    shift
    if "$@" >"$log" 2>&1; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "failed: $what"
        cat "$log"
    fi
}

# same FILE TEXT: whether a file has just this text.
same() {
    diff <(cat "$1") <(printf '%s\n' "$2")
}

# run NAME COMMAND...: runs a program of tests, and adds what its last line counts.
run() {
    counted "$1" timeout --kill-after=5s 60s "${@:2}"
}

product_build vazao-app vazao-capi
prefix="$TMPDIR/prefix"
library_install "$prefix"

# Just what the header declares is exported, with a version.
exported() {
    nm --dynamic --defined-only --with-symbol-versions "$prefix/lib/libvazao.so" |
        awk '$2 != "A" { print $3 }' | sort >"$TMPDIR/exported"
    grep -oE '\bvazao_[a-z_]+\(' "$prefix/include/vazao.h" | tr -d '(' | sort -u |
        grep -Fxf <(sed -n 's/^ *\(vazao_[a-z_]*\);$/\1/p' crates/capi/vazao.map) | sed 's/$/@@VAZAO_0.1/' >"$TMPDIR/declared"
    diff "$TMPDIR/declared" "$TMPDIR/exported"
}
check "exports" exported
check "soname" grep -q 'libvazao\.so\.0\]' <(readelf --dynamic "$prefix/lib/libvazao.so")

export PKG_CONFIG_PATH="$prefix/lib/pkgconfig" LD_LIBRARY_PATH="$prefix/lib"
read -ra flags <<<"$(pkg-config --cflags --libs vazao)"
mkdir "$TMPDIR/bin"

# compile SOURCE NAME FLAG...: as strictly as can be.
compile() {
    cc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Wpedantic -Werror -o "$TMPDIR/bin/$2" "$1" "${@:3}" "${flags[@]}" -lpthread
}
for example in walk copy strided channels; do
    check "$example.c compiles" compile "crates/capi/examples/$example.c" "$example" -O2
done
read -ra static_flags <<<"$(pkg-config --static --libs-only-l vazao | sed "s|-lvazao|$prefix/lib/libvazao.a|")"
check "walk.c compiles with the static library" cc -I"$prefix/include" -o "$TMPDIR/bin/walk-static" \
    crates/capi/examples/walk.c "${static_flags[@]}"
# The first program of the page is the first block of C in it.
sed -n '/^```c$/,/^```$/p' docs/library-c.md | sed '/^```/d' >"$TMPDIR/demo.c"
check "demo.c compiles" compile "$TMPDIR/demo.c" demo
for test in calls names locks threads; do
    check "$test.c compiles" compile "crates/capi/tests/$test.c" "$test" -g -fsanitize=address,undefined -fno-sanitize-recover
done
# The sanitizer for threads sees what the programs themselves do: watchers that another thread would call, memory that
# threads share. The library is not built with it, so that it sees neither the library's accesses nor its mutexes: told
# of both, it takes each mutex of Rust for a data race.
for test in locks threads; do
    check "$test.c compiles for threads" compile "crates/capi/tests/$test.c" "$test-threads" -g -fsanitize=thread
done
check "the header is C++, too" c++ -std=c++17 -Wall -Wextra -Werror -fsyntax-only -x c++ "$prefix/include/vazao.h"

"$programs/vazao" up --dir "$TMPDIR/cluster" --data-servers 2 --zones rio,bra --detach >"$TMPDIR/up.log"
export VAZAO_CLUSTER="$TMPDIR/cluster/client.toml"
mkdir "$TMPDIR/area" "$TMPDIR/other"
"$programs/vazao" area add files "$TMPDIR/area" --dir "$TMPDIR/cluster" --node data1 >"$TMPDIR/log"
"$programs/vazao" area add other "$TMPDIR/other" --dir "$TMPDIR/cluster" --node data2 >"$TMPDIR/log"
export AREA=data1:/files OTHER_AREA=data2:/other
head -c 5000001 /dev/urandom >"$TMPDIR/data"
limited=(timeout --kill-after=5s 60s)
check "copy in" "${limited[@]}" "$TMPDIR/bin/copy" "$TMPDIR/data" vz:/data
check "copy out" "${limited[@]}" "$TMPDIR/bin/copy" vz:/data "$TMPDIR/data.back"
check "copied bytes" cmp "$TMPDIR/data" "$TMPDIR/data.back"
check "copy of what is not there" bash -c "! timeout 60s '$TMPDIR/bin/copy' vz:/nothing '$TMPDIR/nothing' 2>'$TMPDIR/said'"
check "its message" same "$TMPDIR/said" "copy: vz:/nothing: no such file or directory"
"$programs/vazao" mkdir vz:/d
"$programs/vazao" cp "$0" vz:/d/script >"$TMPDIR/log"
"${limited[@]}" "$TMPDIR/bin/walk" / | sort >"$TMPDIR/walked"
check "walk" same "$TMPDIR/walked" "$(printf '%12s /d/script\n%12s /data\n%s' "$(stat -c %s "$0")" 5000001 \
    "2 files, $((5000001 + $(stat -c %s "$0"))) bytes" | sort)"
env -u LD_LIBRARY_PATH "${limited[@]}" "$TMPDIR/bin/walk-static" / | sort >"$TMPDIR/walked.static"
check "walk, linked statically" diff "$TMPDIR/walked" "$TMPDIR/walked.static"
check "demo" bash -c "timeout 60s '$TMPDIR/bin/demo' >'$TMPDIR/said'"
check "what it says" same "$TMPDIR/said" hello
check "strided" bash -c "timeout 60s '$TMPDIR/bin/strided' vz:/matrix 3000 8 >'$TMPDIR/said'"
check "columns" grep -qx "8 columns read, 0 wrong" "$TMPDIR/said"
check "limit" grep -q "^limit: " "$TMPDIR/said"
check "channels" bash -c "timeout 60s '$TMPDIR/bin/channels' $AREA/log $OTHER_AREA/log 1000 >'$TMPDIR/said'"
check "records" grep -qx "1000 records written, the 500th is: record 500" "$TMPDIR/said"
check "copy between nodes" cmp "$TMPDIR/area/log" "$TMPDIR/other/log"
check "its limit" grep -q "^limited by: ." "$TMPDIR/said"
# Nothing listens there.
printf 'meta = ["127.0.0.1:1"]\ninsecure = true\n' >"$TMPDIR/no-cluster.toml"
export NO_CLUSTER="$TMPDIR/no-cluster.toml"
"$programs/vazao" mkdir vz:/near
"$programs/vazao" layout vz:/near --place near-writer >"$TMPDIR/log"
for test in calls names locks threads; do
    run "$test" "$TMPDIR/bin/$test"
done
# Without random addresses, which the sanitizer may have no room among.
export TSAN_OPTIONS="ignore_noninstrumented_modules=1 halt_on_error=1"
for test in locks threads; do
    run "$test-threads" setarch --addr-no-randomize "$TMPDIR/bin/$test-threads"
done
check "bytes of a file of an area" cmp "$TMPDIR/area/f" <(printf '\0\0\0\0\0%s' 0123456)
# zone_of FILE ZONE: whether a file lies in a zone, and nowhere else.
zone_of() {
    "$programs/vazao" layout "$1" --json >"$TMPDIR/layout"
    diff <(grep -o '"zone":"[a-z]*"' "$TMPDIR/layout" | sort -u) <(echo "\"zone\":\"$2\"")
}
check "a file near a writer in rio" zone_of vz:/near/rio rio
check "a file near a writer in bra" zone_of vz:/near/bra bra
check "bytes of a copy between nodes" cmp "$TMPDIR/data" "$TMPDIR/other/copied"

# lua PROGRAM PACKAGE: the module for one Lua, built and tested.
lua() {
    local -a flags
    read -ra flags <<<"$(pkg-config --cflags "$2")"
    mkdir "$TMPDIR/$1"
    check "the module for $1" cc -std=c11 -Wall -Wextra -Wpedantic -Werror -shared -fPIC -O2 bindings/lua-volume/vazao.c \
        -o "$TMPDIR/$1/vazao.so" "${flags[@]}" -I"$prefix/include" -L"$prefix/lib" -lvazao
    LUA_CPATH="$TMPDIR/$1/?.so" run "$1" "$1" bindings/lua-volume/tests/run.lua "$AREA" "$NO_CLUSTER"
}
lua lua5.1 lua5.1
lua lua5.2 lua5.2
lua lua5.3 lua5.3
lua lua5.4 lua5.4
lua luajit luajit
"$programs/vazao" down --dir "$TMPDIR/cluster" >"$TMPDIR/down.log"
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
