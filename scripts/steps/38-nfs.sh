#!/usr/bin/env bash
# The experiments that compare with NFS, at their smallest: NFS-Ganesha and libnfs of Debian, installed where they are
# missing, serve and read on hosts of the laboratory, and every figure gets its values.
set -euo pipefail

source scripts/lib/sandbox.sh
source scripts/lib/product.sh
source scripts/lib/packages.sh
sandbox_enter

if [[ $EUID -ne 0 ]]; then
    echo "the comparison with NFS must be tested as root: only root makes hosts" >&2
    exit 1
fi
if [[ ! -x /usr/bin/ganesha.nfsd || ! -x /usr/sbin/rpcbind ]] || ! ldconfig -p | grep -q 'libnfs\.so\.13'; then
    packages_install nfs-ganesha-vfs rpcbind libnfs13 >"$TMPDIR/apt.log" 2>&1 || {
        echo "NOT TESTED: NFS-Ganesha cannot be installed: $(tail -n 1 "$TMPDIR/apt.log")" >&2
        exit 1
    }
fi
product_build vazao-app
vazao="$programs/vazao"

passed=0
failed=0
for experiment in G13 G14; do
    if "$vazao" lab run "$experiment" --scale tiny --work "$TMPDIR" --out "$TMPDIR/results" &&
        python3 - "$TMPDIR/results/$experiment.json" <<'END'; then
import json, sys
outcome = json.load(open(sys.argv[1]))
for figure in outcome["figures"]:
    names = [series["name"] for series in figure["series"]]
    assert "NFS" in names and len(names) >= 2, names
    for series in figure["series"]:
        assert len(series["points"]) == len(figure["x"]), (figure["key"], series["name"])
        assert all(value > 0 for point in series["points"] for value in point["values"])
END
        passed=$((passed + 1))
    else
        echo "failed: $experiment"
        failed=$((failed + 1))
    fi
done
echo "$passed passed, $failed failed"
[[ $failed -eq 0 ]]
