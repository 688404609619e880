#!/usr/bin/env bash
# ./x bench-movers [--size MIB] [--rounds N] [--dir DIR] [--write]
# One large file over loopback by `vazao cp` between two nodes, by each method, beside raw TCP with a file on both
# sides, rclone, scp, xrdcp and curl to PureFTPd, in turns, each ending with an fsync of what arrived. Installs what is
# missing (Debian, as root) and skips nothing: what cannot be measured ends it. DIR is where the files lie, by default
# memory (/dev/shm), so that the movers are compared and not the disk. --write puts the table into docs/grid.md.
set -euo pipefail

source scripts/lib/sandbox.sh
sandbox_enter

mib=1024
rounds=5
place=/dev/shm
write=no
while [[ $# -gt 0 ]]; do
    case "$1" in
    --size) mib="$2" && shift 2 ;;
    --rounds) rounds="$2" && shift 2 ;;
    --dir) place="$2" && shift 2 ;;
    --write) write=yes && shift ;;
    *) echo "bench-movers: $1: see ./x help" >&2 && exit 2 ;;
    esac
done
[[ $EUID -eq 0 ]] || { echo "bench-movers: starts sshd, PureFTPd and xrootd: run it as root" >&2 && exit 1; }

declare -A packages=([rclone]=rclone [scp]=openssh-client [sshd]=openssh-server [xrdcp]=xrootd-client
    [xrootd]=xrootd-server [curl]=curl [pure-ftpd]=pure-ftpd [python3]=python3)
missing=()
for program in "${!packages[@]}"; do
    command -v "$program" >/dev/null || missing+=("${packages[$program]}")
done
if [[ ${#missing[@]} -gt 0 ]]; then
    echo "installing ${missing[*]}" >&2
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "${missing[@]}" >/dev/null
fi

if [[ -n "${VAZAO_BENCH_PROGRAM:-}" ]]; then
    vazao="$VAZAO_BENCH_PROGRAM"
else
    cargo build --release --locked --package vazao-app
    vazao="$(realpath "${CARGO_TARGET_DIR:-target}/release/vazao")"
fi

files="$(mktemp -d "$place/vazao-movers.XXXXXX")"
chmod 755 "$files"
remove_files() {
    rm -rf "$files"
}
sandbox_at_end remove_files
mkdir "$files/out" "$files/in"
chmod 777 "$files/in"
head -c "${mib}M" /dev/urandom >"$files/out/big"
into="$files/in/big"

# A free port of the loopback.
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

await_port() {
    local try
    for try in $(seq 100); do
        (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null && return 0
        sleep 0.1
    done
    echo "bench-movers: $2 does not answer: $(tail -n 3 "$TMPDIR/$2.log")" >&2
    return 1
}

# --- what receives ---------------------------------------------------------------------------------------------------

"$vazao" up --dir "$TMPDIR/cluster" --data-servers 2 --detach >/dev/null
export VAZAO_CLUSTER="$TMPDIR/cluster/client.toml"
"$vazao" area add out "$files/out" --dir "$TMPDIR/cluster" --node data1 >/dev/null
"$vazao" area add in "$files/in" --dir "$TMPDIR/cluster" --node data2 >/dev/null

ssh_port="$(free_port)"
ssh-keygen -q -t ed25519 -N '' -f "$TMPDIR/host_key"
ssh-keygen -q -t ed25519 -N '' -f "$TMPDIR/user_key"
chmod 600 "$TMPDIR/user_key.pub"
mkdir -p /run/sshd
"$(command -v sshd)" -D -f /dev/null -p "$ssh_port" -h "$TMPDIR/host_key" -o ListenAddress=127.0.0.1 \
    -o AuthorizedKeysFile="$TMPDIR/user_key.pub" -o PermitRootLogin=yes -o StrictModes=no -o PidFile=none \
    -o Subsystem="sftp internal-sftp" >"$TMPDIR/sshd.log" 2>&1 &
await_port "$ssh_port" sshd

ftp_port="$(free_port)"
printf 'bench\nbench\n' | pure-pw useradd bench -u nobody -g nogroup -d "$files/in" -f "$TMPDIR/passwd" >/dev/null
pure-pw mkdb "$TMPDIR/users.pdb" -f "$TMPDIR/passwd"
pure-ftpd -S "127.0.0.1,$ftp_port" -l "puredb:$TMPDIR/users.pdb" -E -u 1 -H -g "$TMPDIR/pure-ftpd.pid" \
    >"$TMPDIR/pure-ftpd.log" 2>&1 &
await_port "$ftp_port" pure-ftpd

dav_port="$(free_port)"
rclone serve webdav "$files/in" --addr "127.0.0.1:$dav_port" --config /dev/null >"$TMPDIR/rclone.log" 2>&1 &
await_port "$dav_port" rclone

xrd_port="$(free_port)"
mkdir -m 777 "$TMPDIR/xrd"
printf 'all.export %s\nall.adminpath %s\nall.pidpath %s\nxrd.port %s\n' \
    "$files" "$TMPDIR/xrd" "$TMPDIR/xrd" "$xrd_port" >"$TMPDIR/xrootd.cfg"
xrootd -R nobody -c "$TMPDIR/xrootd.cfg" -p "$xrd_port" -l "$TMPDIR/xrd/log" >"$TMPDIR/xrootd.log" 2>&1 &
await_port "$xrd_port" xrootd

# Reads, sends, receives, writes, a mebibyte at a time: what no mover can do without.
cat >"$TMPDIR/raw.py" <<'PYTHON'
import os, socket, sys
source, target = sys.argv[1:]
listener = socket.create_server(("127.0.0.1", 0))
buffer = memoryview(bytearray(1 << 20))
if os.fork() == 0:
    sender = socket.create_connection(listener.getsockname())
    with open(source, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            sender.sendall(buffer[:count])
    os._exit(0)
receiver, _ = listener.accept()
with open(target, "wb", buffering=0) as file:
    while count := receiver.recv_into(buffer):
        written = 0
        while written < count:
            written += file.write(buffer[written:count])
os.wait()
PYTHON

# --- the movers ------------------------------------------------------------------------------------------------------

between() {
    "$vazao" cp --json --method "$1" data1:/out/big data2:/in/ >/dev/null
}
move_raw() { python3 "$TMPDIR/raw.py" "$files/out/big" "$into"; }
move_vazao_blocking() { between blocking; }
move_vazao_streams() { between streams:4; }
move_vazao_nonblocking() { between nonblocking; }
move_vazao_rpc() { between rpc; }
move_vazao_ftp() { between ftp; }
move_vazao_auto() { between auto; }
move_vazao_to_pureftpd() {
    VAZAO_FTP_PASSWORD=bench "$vazao" cp "$files/out/big" "ftp://bench@127.0.0.1:$ftp_port/" >/dev/null
}
move_curl_to_pureftpd() {
    curl -sS --netrc-file "$TMPDIR/netrc" -T "$files/out/big" "ftp://127.0.0.1:$ftp_port/big"
}
move_rclone_to_webdav() {
    rclone copyto --config /dev/null --retries 1 --no-check-dest "$files/out/big" \
        ":webdav,url='http://127.0.0.1:$dav_port':big"
}
move_rclone_to_pureftpd() {
    rclone copyto --config /dev/null --retries 1 --no-check-dest "$files/out/big" \
        ":ftp,host=127.0.0.1,port=$ftp_port,user=bench,pass=$ftp_pass:big"
}
move_scp() {
    scp -q -F /dev/null -i "$TMPDIR/user_key" -P "$ssh_port" -o StrictHostKeyChecking=no \
        -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR "$files/out/big" "root@127.0.0.1:$into"
}
move_xrdcp() { xrdcp -f -N -s "$files/out/big" "root://127.0.0.1:$xrd_port/$into"; }

printf 'machine 127.0.0.1 login bench password bench\n' >"$TMPDIR/netrc"
ftp_pass="$(rclone obscure bench)"
movers=(raw vazao_blocking vazao_streams vazao_nonblocking vazao_rpc vazao_ftp vazao_auto curl_to_pureftpd
    vazao_to_pureftpd rclone_to_webdav rclone_to_pureftpd scp xrdcp)
declare -A shown=([raw]="raw TCP, a file read and written" [vazao_blocking]="vazao cp, blocking"
    [vazao_streams]="vazao cp, streams:4" [vazao_nonblocking]="vazao cp, nonblocking" [vazao_rpc]="vazao cp, rpc"
    [vazao_ftp]="vazao cp, ftp" [vazao_auto]="vazao cp, auto" [curl_to_pureftpd]="curl to PureFTPd"
    [vazao_to_pureftpd]="vazao cp to PureFTPd" [rclone_to_webdav]="rclone to its WebDAV server"
    [rclone_to_pureftpd]="rclone to PureFTPd" [scp]="scp" [xrdcp]="xrdcp to XRootD")

# The first use of memory that the machine has given back to its host is slow: warm it up for all movers alike.
warm() { head -c "$((mib * 3))M" /dev/zero >"$files/in/warm" && rm "$files/in/warm"; }

results="$TMPDIR/results"
for round in $(seq 0 "$rounds"); do
    warm
    for at in "${!movers[@]}"; do
        mover="${movers[$(((at + round) % ${#movers[@]}))]}"
        rm -f "$into"
        before="$EPOCHREALTIME"
        "move_$mover" || { echo "bench-movers: ${shown[$mover]} failed" >&2 && exit 1; }
        sync "$into"
        after="$EPOCHREALTIME"
        # The first round also shows that all of it arrives, and is not counted.
        if [[ $round -eq 0 ]]; then
            cmp "$files/out/big" "$into" || { echo "bench-movers: ${shown[$mover]}: another file" >&2 && exit 1; }
        else
            echo "$mover $before $after" >>"$results"
        fi
    done
done

table="$TMPDIR/table.md"
names="$(for mover in "${movers[@]}"; do echo "$mover=${shown[$mover]}"; done)"
NAMES="$names" python3 - "$results" "$mib" "$rounds" >"$table" <<'PYTHON'
import os, statistics, sys
names = dict(line.split("=", 1) for line in os.environ["NAMES"].splitlines())
rates = {}
for line in open(sys.argv[1]):
    mover, before, after = line.split()
    rates.setdefault(mover, []).append(int(sys.argv[2]) * 1.048576 / (float(after) - float(before)))
raw = rates["raw"]
print(f"| {sys.argv[2]} MiB, {sys.argv[3]} rounds in turns | MB/s, median | from–to | of raw, median of rounds |")
print("|---|---|---|---|")
for mover, name in names.items():
    own = rates[mover]
    share = statistics.median(a / b for a, b in zip(own, raw)) * 100
    print(f"| {name} | {statistics.median(own):.0f} | {min(own):.0f}–{max(own):.0f} | {share:.0f} % |")
PYTHON
cat "$table"

if [[ "$write" = yes ]]; then
    page=docs/grid.md
    sed -e '/<!-- movers:begin -->/,/<!-- movers:end -->/{
        /<!-- movers:begin -->/{
            p
            r '"$table"'
            d
        }
        /<!-- movers:end -->/!d
    }' "$page" >"$TMPDIR/page.md"
    cat "$TMPDIR/page.md" >"$page"
    echo "Table written to $page"
fi
