# The long tests: what has a knob, turned up. To be sourced, after steps.sh. How long each takes is in CONTRIBUTING.md.

# long_part NAME COUNT WHAT KNOBS COMMAND...: adds a part. KNOBS are variables for the command, COUNT is how often.
long_parts=()
long_part() {
    long_parts+=("$1|$2|$3|$4|${*:5}")
}

long_part power 40 "losses of power on each file system" VAZAO_POWER_ROUNDS=40 \
    bash scripts/steps/39-power.sh
long_part partitions 200 "cuts of links between hosts" VAZAO_PARTITION_ROUNDS=200 VAZAO_CLOCK_ROUNDS=3 \
    bash scripts/steps/40-partitions.sh
long_part clocks 200 "jumps of the clock of a daemon or a mount" VAZAO_CLOCK_ROUNDS=200 VAZAO_PARTITION_ROUNDS=1 \
    bash scripts/steps/40-partitions.sh
long_part members 300 "data servers that fail, of two copies and of three" VAZAO_MEMBER_ROUNDS=300 \
    VAZAO_MEMBER_PAIR_ROUNDS=300 bash scripts/steps/44-members.sh
long_part crashes 500 "kills of mounts, servers, all" VAZAO_CRASH_ROUNDS=500 \
    cargo test --release --locked -p vazao-app --test processes crash_manifest
long_part jobs 200 "kills of copying nodes" VAZAO_JOB_KILLS=200 \
    cargo test --release --locked -p vazao-app --test processes a_job_survives_the_death_of_either_daemon
long_part differential 1000000 "operations compared with a tmpfs" VAZAO_DIFFERENTIAL_OPERATIONS=1000000 \
    cargo test --release --locked -p vazao-fuse --test mount differential
long_part fsx 2000000 "operations of fsx on each kind of file" VAZAO_FSX_FULL=1 \
    bash scripts/steps/31-fsx.sh
long_part simulation 20000 "simulated clusters" VAZAO_SIM_SEEDS=20000 \
    cargo test --release --locked -p vazao-sim --test clusters seeds
long_part lines 200 "simulated clusters of two sites whose line is cut" VAZAO_SIM_SEEDS=200 \
    cargo test --release --locked -p vazao-sim --test clusters a_line_that_is_cut
long_part links 2000 "simulated clusters whose links, machines and power fail" VAZAO_SIM_SEEDS=2000 \
    cargo test --release --locked -p vazao-sim --test clusters no_link_that_is_cut
long_part starts 1000 "rounds of restarts at every step of a start" VAZAO_SIM_SEEDS=1000 \
    cargo test --release --locked -p vazao-sim --test clusters no_call_fails
long_part peers 1 "C1 and C2 beside GlusterFS, MooseFS and CephFS" LC_ALL=C bash scripts/peers.sh
long_part trials 8 "libraries of Python above the volume" LC_ALL=C bash scripts/trials.sh
long_part decoders 20000000 "damaged messages for each decoder" VAZAO_FUZZ_ROUNDS=20000000 \
    cargo test --release --locked -p vazao-wire --test bytes fuzz
long_part requests 20000000 "damaged requests to an area" VAZAO_FUZZ_REQUESTS=20000000 \
    cargo test --release --locked -p vazao-area messages
long_part escapes 1000000 "ways out of an area tried" VAZAO_ESCAPE_ATTEMPTS=1000000 \
    cargo test --release --locked -p vazao-area attacks
long_part properties 20000 "cases of each property without a number of its own" PROPTEST_CASES=20000 \
    cargo test --release --locked -p vazao-model -p vazao-disk -p vazao-wire -p vazao-store --lib
long_rows=()

# long_check PART...: refuses a part that there is not.
long_check() {
    local part line
    for part in "$@"; do
        for line in "${long_parts[@]}"; do
            [[ "${line%%|*}" != "$part" ]] || continue 2
        done
        echo "./x test --long: there is no part \"$part\"; there are: ${long_parts[*]%%|*}" >&2
        exit 2
    done
}

# long_run PART...: runs those parts, or all.
long_run() {
    local line name count what knobs command before_passed before_failed started
    for line in "${long_parts[@]}"; do
        IFS='|' read -r name count what knobs command <<<"$line"
        [[ $# -eq 0 || " $* " == *" $name "* ]] || continue
        before_passed=$passed before_failed=$failed started=$SECONDS
        # Words of ours, without blanks in them.
        # shellcheck disable=SC2086
        step "long: $name" bounded 12h env $knobs $command
        # Nothing that ran is nothing that was shown.
        if [[ $passed -eq $before_passed && $failed -eq $before_failed ]]; then
            failed=$((failed + 1))
            failed_steps+=("long: $name, which ran no test")
        fi
        local counts="$((passed - before_passed))|$((failed - before_failed))"
        long_rows+=("$name|$count|$what|$counts|$((SECONDS - started))")
    done
}

# What ran how often, and what failed.
long_table() {
    local row name count what row_passed row_failed seconds
    printf '\n%-13s %9s  %-52s %7s %7s %8s\n' part times of passed failed seconds
    for row in "${long_rows[@]}"; do
        IFS='|' read -r name count what row_passed row_failed seconds <<<"$row"
        printf '%-13s %9s  %-52s %7s %7s %8s\n' "$name" "$count" "$what" "$row_passed" "$row_failed" "$seconds"
    done
}
