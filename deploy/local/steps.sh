# shellcheck shell=bash
# How the scripts beside this file speak, wait, and start and stop processes.
# A process is known by its pid AND its start time, because a pid alone may by
# now belong to somebody else's process.

say() { printf '%s\n' "$*"; }
fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

# step TEXT COMMAND... : runs it, and says what it is and how long it took.
step() {
    local text="$1" start="$EPOCHREALTIME"
    shift
    say "==> $text"
    "$@"
    say "    done in $(seconds_since "$start") s"
}

seconds_since() { awk -v a="$1" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }'; }

# within SECONDS COMMAND... : true as soon as the command succeeds.
within() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        ((SECONDS < deadline)) || return 1
        sleep 0.1
    done
}

# start_time PID : the kernel's start time of a process; fails when it is gone
# or a zombie, which holds nothing any more.
start_time() {
    local stat fields
    { stat="$(<"/proc/$1/stat")"; } 2>/dev/null || return 1
    read -r -a fields <<<"${stat##*) }" # the name before ')' may hold spaces
    [[ ${fields[0]} != Z ]] && printf '%s' "${fields[19]}"
}

# start DIR NAME COMMAND... : runs COMMAND detached from the terminal, with
# DIR/log/NAME.log, recorded in DIR/pids/NAME. Does nothing when it runs.
start() {
    local dir="$1" name="$2"
    shift 2
    if running "$dir" "$name"; then return; fi
    mkdir -p "$dir/pids" "$dir/log"
    # setsid: Ctrl-C in the terminal must not reach the cluster. In the
    # background it need not fork, so that $! is the command's own pid.
    setsid "$@" >>"$dir/log/$name.log" 2>&1 </dev/null 8>&- &
    local pid=$! began
    began="$(start_time "$pid")" || fail "$name ended at once: see $dir/log/$name.log"
    printf '%s %s\n' "$pid" "$began" >"$dir/pids/$name"
}

# running DIR NAME
running() {
    local pid began
    [[ -r "$1/pids/$2" ]] && read -r pid began <"$1/pids/$2" &&
        [[ "$(start_time "$pid")" == "$began" ]]
}

stopped() { ! running "$@"; }

# stop DIR NAME SECONDS : asks it to end, waits for the pid to be really gone
# (an API server keeps its port while it drains), and then insists.
stop() {
    local dir="$1" name="$2" patience="$3" pid began
    if running "$dir" "$name"; then
        read -r pid began <"$dir/pids/$name"
        kill -TERM "$pid" 2>/dev/null || true
        if ! within "$patience" stopped "$dir" "$name"; then
            kill -KILL "$pid" 2>/dev/null || true
            within 10 stopped "$dir" "$name" || fail "$name (pid $pid) does not end, even killed"
        fi
    fi
    rm -f "$dir/pids/$name"
}

# await DIR NAME SECONDS COMMAND... : waits until COMMAND succeeds; says at
# once when the process it waits for has ended.
await() {
    local dir="$1" name="$2" deadline=$((SECONDS + $3))
    shift 3
    until "$@" >/dev/null 2>&1; do
        if stopped "$dir" "$name"; then
            tail -n 5 "$dir/log/$name.log" >&2
            fail "$name ended: see $dir/log/$name.log"
        fi
        if ((SECONDS >= deadline)); then
            tail -n 5 "$dir/log/$name.log" >&2
            fail "$name is not ready in time: see $dir/log/$name.log"
        fi
        sleep 0.1
    done
}

# once DIR COMMAND ARGUMENT... : makes the folder DIR by COMMAND, which gets a
# scratch folder as its last argument; the rename at the end makes it whole or
# absent, whenever Ctrl-C comes.
once() {
    local dir="$1" scratch
    shift
    mkdir -p "$(dirname "$dir")"
    scratch="$dir.part"
    exec 9>"$dir.lock"
    flock 9 # a second start waits here instead of building the same twice
    if [[ ! -d "$dir" ]]; then
        rm -rf "$scratch"
        mkdir "$scratch"
        "$@" "$scratch" 9>&-
        mv "$scratch" "$dir"
    fi
    exec 9>&-
}

# one_at_a_time FILE : waits until no other `up` or `down` is at work. One that
# was started by the other shares its turn. The lock is file descriptor 8.
one_at_a_time() {
    [[ "${TURN_TAKEN:-}" == "$1" ]] && return
    mkdir -p "$(dirname "$1")"
    exec 8>"$1"
    if ! flock --nonblock 8; then
        say "Waiting for another local-up or local-down on this machine to finish"
        flock 8
    fi
    export TURN_TAKEN="$1"
}
