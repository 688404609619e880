#!/usr/bin/env bash
# Experiments C1 and C2 beside other file systems, at their smallest: GlusterFS, MooseFS and CephFS of Debian, installed
# where missing, serve on hosts of the laboratory, and every place that they can be measured at gets its values.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/product.sh
source scripts/lib/packages.sh
sandbox_enter

if [[ $EUID -ne 0 ]]; then
    echo "other file systems must be tested as root: only root makes hosts" >&2
    exit 1
fi
needed=(/usr/sbin/{glusterd,mfsmaster,mfschunkserver} /usr/bin/{mfsmount,ceph-{mon,osd,mds,fuse},fio})
if ! ls "${needed[@]}" >/dev/null 2>&1; then
    packages_install glusterfs-server glusterfs-client moosefs-master moosefs-chunkserver moosefs-client \
        ceph-mon ceph-osd ceph-mds ceph-fuse ceph-common fio >"$TMPDIR/apt.log" 2>&1 || {
        echo "NOT TESTED: GlusterFS, MooseFS, CephFS and fio cannot be installed: $(tail -n 1 "$TMPDIR/apt.log")" >&2
        exit 1
    }
fi
product_build vazao-app
vazao="$programs/vazao"

passed=0
failed=0
for experiment in C1 C2; do
    if "$vazao" lab run "$experiment" --peers --scale tiny --work "$TMPDIR" --out "$TMPDIR/results" &&
        python3 - "$TMPDIR/results/$experiment.json" <<'END'; then
import json, sys
outcome = json.load(open(sys.argv[1]))
figures = {figure["key"]: figure for figure in outcome["figures"]}
for key in ["write", "rewrite", "read", "reread", "reread-from-memory"]:
    series = {series["name"]: series["points"] for series in figures[key]["series"]}
    # Over two sites their large files take too long.
    places = len(figures[key]["x"]) if outcome["id"] == "C1" else 1
    for peer in ["GlusterFS", "MooseFS", "CephFS"]:
        for client in ["client 1", "client 2"]:
            points = series[f"{peer}, {client}"]
            assert len(points) == places, (key, peer, client, outcome["gaps"])
            assert all(value > 0 for point in points for value in point["values"])
for key in ["fio", "fio-ratio"]:
    for series in figures[key]["series"]:
        assert len(series["points"]) == 2 and all(point["values"][0] > 0 for point in series["points"]), series
assert any("each peer" in finding["shape"] for finding in outcome["findings"]), outcome["findings"]
assert not any(gap.startswith(("GlusterFS", "MooseFS", "CephFS", "our own load")) for gap in outcome["gaps"]), outcome["gaps"]
END
        passed=$((passed + 1))
    else
        echo "failed: $experiment"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
