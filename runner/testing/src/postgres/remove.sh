# Waits for the end of the input, then stops the server whose folder is $1, and removes the folder.
trap '' HUP INT QUIT TERM
while read -r _; do :; done

home=$1
lock=$home/data/postmaster.pid

# Whether $pid still is this folder's server, and not a later process with the same number.
ours() {
    { tr '\0' ' ' <"/proc/$pid/cmdline" || ps -o args= -p "$pid"; } 2>/dev/null | grep -qF -- "$home/data"
}

# Sends $1 to all of PostgreSQL's that works in the folder (where there is no /proc, to nobody).
signal() {
    for entry in $(find /proc -maxdepth 2 -name cwd \( -lname "$home" -o -lname "$home/*" \)); do
        entry=${entry%/cwd}
        read -r name <"$entry/comm"
        case $name in postgres | postmaster | initdb | pg_basebackup) kill "$1" "${entry#/proc/}" ;; esac
    done
}

# An immediate shutdown, in which the server itself ends its backends. It removes the lock file last.
if read -r pid <"$lock" && ours; then
    kill -QUIT "$pid"
    kill -CONT "$pid"
    signal -CONT
    tries=0
    while [ -e "$lock" ] && ours && [ "$tries" -lt 200 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    [ -e "$lock" ] && ours && kill -KILL "$pid"
fi

# A server that was killed leaves its shared memory, named in the seventh line of the lock file.
shm=$(sed -n '7s/.* //p' "$lock")

# What works in the folder goes with it: an initdb that was cut short, backends that outlived their server.
# A folder is gone only when nobody writes into it any more, hence the repetition.
tries=0
while [ -e "$home" ] && [ "$tries" -lt 200 ]; do
    signal -KILL
    rm -rf "$home"
    [ -e "$home" ] && sleep 0.05
    tries=$((tries + 1))
done
[ -z "$shm" ] || ipcrm -m "$shm"
